import { createContext, type FormEvent, type InputHTMLAttributes, type ReactNode, useContext } from "react";
import { useAction } from "./action.tsx";
import { Button, Field } from "./basics.tsx";
import { issueOf, Problem } from "./problem.tsx";
import { spell } from "./time.tsx";

/** What was filled into a form. */
export interface FormFields {
  /** Without spaces around it; undefined if it was left empty. */
  text(name: string): string | undefined;
  /** As it was typed, such as a password. */
  exact(name: string): string;
  number(name: string): number | undefined;
  flag(name: string): boolean;
  all(name: string): string[];
}

function readFields(form: HTMLFormElement): FormFields {
  const data = new FormData(form);
  const exact = (name: string) => String(data.get(name) ?? "");
  const text = (name: string) => exact(name).trim() || undefined;
  return {
    text,
    exact,
    number: (name) => (text(name) === undefined ? undefined : Number(text(name))),
    flag: (name) => data.has(name),
    all: (name) => data.getAll(name).map(String),
  };
}

/**
 * What a form changes of a record. The other fields are not sent, so that they stay as somebody else may have made them
 * meanwhile.
 */
export function changedFields<Fields extends object>(
  given: Fields,
  old: { readonly [Name in keyof Fields]: unknown },
): Partial<Fields> {
  const changed = Object.entries(given).filter(([name, value]) => value !== old[name as keyof Fields]);
  return Object.fromEntries(changed) as Partial<Fields>;
}

const FormError = createContext<unknown>(undefined);

/** A form that is sent once at a time, and shows at its fields and below them what was wrong. */
export function Form(o: {
  children: ReactNode;
  /** What its button says. */
  action?: string;
  kind?: "primary" | "danger";
  disabled?: boolean;
  onCancel?: (() => void) | undefined;
  send(fields: FormFields): Promise<unknown>;
}) {
  const { busy, error, act } = useAction();
  function submit(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const fields = readFields(event.currentTarget);
    act(() => o.send(fields));
  }
  return (
    <FormError value={error}>
      <form className="form" onSubmit={submit}>
        {o.children}
        {error !== undefined && <Problem error={error} />}
        <div className="form-end">
          {o.onCancel && <Button onClick={o.onCancel}>Cancel</Button>}
          <Button kind={o.kind ?? "primary"} type="submit" busy={busy} disabled={o.disabled}>
            {o.action ?? "Save"}
          </Button>
        </div>
      </form>
    </FormError>
  );
}

interface NamedField {
  label: string;
  name: string;
  hint?: ReactNode;
  unit?: string;
  optional?: boolean;
  /** The field of the API's body, by which its errors name it; its name unless given. */
  field?: string;
}

export function TextField({
  label,
  name,
  hint,
  unit,
  optional,
  field = name,
  ...input
}: NamedField & Omit<InputHTMLAttributes<HTMLInputElement>, "name">) {
  const problem = issueOf(useContext(FormError), field);
  return (
    <Field label={label} hint={hint} problem={problem} unit={unit} optional={optional ?? false}>
      {(control) => <input spellCheck={false} required={!optional} {...input} {...control} name={name} />}
    </Field>
  );
}

/** A time of a sandbox in seconds, spelled out below; `unset` says what holds without one. */
export function SecondsField({
  label,
  unit = "seconds",
  value,
  onChange,
  optional = false,
  unset,
  problem,
}: {
  label: string;
  unit?: string;
  value: string;
  onChange(value: string): void;
  optional?: boolean;
  unset?: string;
  problem?: string | undefined;
}) {
  const hint = value ? spell(Number(value)) : unset;
  return (
    <Field label={label} optional={optional} unit={unit} hint={hint} problem={problem}>
      {(control) => (
        <input
          {...control}
          type="number"
          min={60}
          max={86_400}
          required={!optional}
          value={value}
          onChange={(event) => onChange(event.target.value)}
        />
      )}
    </Field>
  );
}

export function SelectField({
  label,
  name,
  hint,
  optional,
  field = name,
  options,
  ...select
}: NamedField & {
  options: readonly (readonly [value: string, text: string])[];
  defaultValue?: string | undefined;
  value?: string;
  onChange?(value: string): void;
}) {
  const problem = issueOf(useContext(FormError), field);
  const { onChange, ...rest } = select;
  return (
    <Field label={label} hint={hint} problem={problem} optional={optional ?? false}>
      {(control) => (
        <select {...rest} {...control} name={name} onChange={(event) => onChange?.(event.target.value)}>
          {options.map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

export function CheckField(o: { label: ReactNode; name: string; value?: string; defaultChecked?: boolean }) {
  return (
    <label className="check">
      <input type="checkbox" name={o.name} value={o.value ?? "on"} defaultChecked={o.defaultChecked} />
      <span>{o.label}</span>
    </label>
  );
}
