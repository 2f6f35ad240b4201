import { Tooltip } from "@base-ui/react/tooltip";
import { Check, Copy as CopyIcon } from "lucide-react";
import { type ButtonHTMLAttributes, type ReactElement, type ReactNode, useId, useState } from "react";

type ButtonProps = ButtonHTMLAttributes<HTMLButtonElement> & {
  kind?: "primary" | "plain" | "quiet" | "danger" | undefined;
  /** Something is under way, and a second click would repeat it. */
  busy?: boolean;
  icon?: ReactNode;
};

export function Button({ kind = "plain", busy = false, icon, children, className = "", ...rest }: ButtonProps) {
  return (
    <button type="button" {...rest} disabled={rest.disabled || busy} className={`button ${kind} ${className}`}>
      {busy ? <Spinner /> : icon}
      {children}
    </button>
  );
}

/** A button that is an icon alone. Its name shows on hover and on focus. */
export function IconButton({ label, children, ...rest }: ButtonProps & { label: string }) {
  return (
    <Hint text={label}>
      <button type="button" {...rest} aria-label={label} className={`icon-button ${rest.className ?? ""}`}>
        {children}
      </button>
    </Hint>
  );
}

/** A text beside something that can have the focus; it shows on hover and on focus. */
function Hint({ text, children }: { text: string; children: ReactElement }) {
  return (
    <Tooltip.Root>
      <Tooltip.Trigger render={children} delay={400} />
      <Tooltip.Portal>
        <Tooltip.Positioner sideOffset={6}>
          <Tooltip.Popup className="tooltip">{text}</Tooltip.Popup>
        </Tooltip.Positioner>
      </Tooltip.Portal>
    </Tooltip.Root>
  );
}

export function Spinner() {
  return <span className="spinner" aria-hidden="true" />;
}

/** Shown while something is read for the first time. */
export function Loading({ what = "Loading" }: { what?: string }) {
  return (
    <p className="loading" role="status">
      <Spinner /> {what}…
    </p>
  );
}

/** Puts a text on the clipboard. */
export function CopyButton({ text, label = "Copy", kind }: { text: string; label?: string; kind?: "primary" }) {
  const [copied, setCopied] = useState(false);
  async function copy() {
    await writeClipboard(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 2_000);
  }
  return (
    <>
      <Button
        kind={kind ?? "quiet"}
        className="small"
        onClick={copy}
        icon={copied ? <Check aria-hidden /> : <CopyIcon aria-hidden />}
      >
        {label}
      </Button>
      <span role="status" className="visually-hidden">
        {copied ? "Copied" : ""}
      </span>
    </>
  );
}

async function writeClipboard(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Over plain HTTP there is no clipboard but this one.
  const area = Object.assign(document.createElement("textarea"), { value: text });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** A line of a shell, with its Copy. */
export function CodeLine({ code }: { code: string }) {
  return (
    <div className="code-line">
      <pre>
        <code>{code}</code>
      </pre>
      <CopyButton text={code} />
    </div>
  );
}

interface FieldProps {
  label: string;
  hint?: ReactNode;
  /** What is wrong with the value. */
  problem?: string | undefined;
  /** A unit behind the control. */
  unit?: string | undefined;
  optional?: boolean;
  className?: string | undefined;
  children(control: { id: string; "aria-describedby"?: string; "aria-invalid"?: true }): ReactNode;
}

/** A control with its label, its hint and what is wrong with its value. */
export function Field({ label, hint, problem, unit, optional, className = "", children }: FieldProps) {
  const id = useId();
  const described = [hint && `${id}-hint`, problem && `${id}-problem`].filter(Boolean).join(" ");
  return (
    <div className={`field ${className}`}>
      <label htmlFor={id}>
        {label}
        {optional && <span className="optional"> optional</span>}
      </label>
      <div className="control">
        {children({
          id,
          ...(described && { "aria-describedby": described }),
          ...(problem && { "aria-invalid": true as const }),
        })}
        {unit && <span className="unit">{unit}</span>}
      </div>
      {hint && (
        <p id={`${id}-hint`} className="hint">
          {hint}
        </p>
      )}
      {problem && (
        <p id={`${id}-problem`} className="field-problem">
          {problem}
        </p>
      )}
    </div>
  );
}

const tones: Record<string, string> = {
  ready: "good",
  provisioning: "busy",
  stopping: "busy",
  failed: "bad",
  stopped: "idle",
  running: "good",
  exited: "idle",
  lost: "bad",
};

/** A state with its colour; the word says it as well. */
export function State({ state }: { state: string }) {
  return <span className={`state ${tones[state] ?? "idle"}`}>{state}</span>;
}

export function PageHeader({ title, children, note }: { title: ReactNode; children?: ReactNode; note?: ReactNode }) {
  return (
    <header className="page-header">
      <div>
        <h1>{title}</h1>
        {note && <p className="note">{note}</p>}
      </div>
      {children && <div className="actions">{children}</div>}
    </header>
  );
}

/** What to do first where a list is empty. */
export function Empty(o: {
  title: string;
  children?: ReactNode;
  /** The first step as a request. */
  curl?: string;
  /** The same for the command line. */
  cli?: string;
}) {
  const { title, children, curl, cli } = o;
  return (
    <section className="empty">
      <h2>{title}</h2>
      {children}
      {curl && (
        <>
          <p className="muted">The same from a shell:</p>
          <CodeLine code={curl} />
        </>
      )}
      {cli && <CodeLine code={cli} />}
    </section>
  );
}

export function Tag({ children }: { children: ReactNode }) {
  return <span className="tag">{children}</span>;
}

export function Labels({ labels }: { labels: Readonly<Record<string, string>> }) {
  const entries = Object.entries(labels);
  if (entries.length === 0) return <span className="muted">none</span>;
  return (
    <span className="tags">
      {entries.map(([key, value]) => (
        <Tag key={key}>
          {key}={value}
        </Tag>
      ))}
    </span>
  );
}
