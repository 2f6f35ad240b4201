import type { SandboxRecord } from "@sandgate/client";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { AlertTriangle, Check, Minus, X } from "lucide-react";
import { hasEnded, liveMs, sandboxQuery } from "../sandbox-queries.ts";
import { Labels, Spinner } from "../ui/basics.tsx";
import { Problem } from "../ui/problem.tsx";
import { bytes, spell, Time, useNow } from "../ui/time.tsx";
import { useWorkspace } from "../workspace.ts";

const mebibyte = 1024 * 1024;
const phases = [
  ["accepted", "Accepted"],
  ["image_pulled", "Image pulled"],
  ["created", "Container created"],
  ["started", "Started"],
  ["ready", "Ready"],
] as const;

/** How a sandbox came to be, what it uses, and its record. */
export function Overview() {
  const { sandboxId } = useParams({ from: "/shell/sandboxes/$sandboxId" });
  const { workspace, sandgate } = useWorkspace();
  const { data: sandbox } = useQuery(sandboxQuery(sandgate, workspace.id, sandboxId));
  if (!sandbox) return null;
  return (
    <>
      {sandbox.state === "failed" && <Failure sandbox={sandbox} />}
      <div className="overview">
        <div className="column">
          <section className="card">
            <h2>Timeline</h2>
            <Timeline sandbox={sandbox} />
          </section>
          {sandbox.readyAt && <Memory sandbox={sandbox} />}
        </div>
        <Record sandbox={sandbox} />
      </div>
    </>
  );
}

function Failure({ sandbox }: { sandbox: SandboxRecord }) {
  const { id, stateReason, message, hint } = sandbox;
  return (
    <div role="alert" className="problem">
      <AlertTriangle aria-hidden className="problem-icon" />
      <div>
        <p className="problem-message">{message ?? "The sandbox failed."}</p>
        {hint && <p>{hint}</p>}
        <p className="request-id">
          Reason <code>{stateReason}</code>
        </p>
        <p>
          <Link to="/sandboxes/new" search={{ like: id }} className="button plain small">
            Try again
          </Link>
        </p>
      </div>
    </div>
  );
}

function Timeline({ sandbox }: { sandbox: SandboxRecord }) {
  const { timeline, state, pull, stoppedAt } = sandbox;
  const times = new Map(timeline.map(({ phase, at }) => [phase, at]));
  const start = Date.parse(sandbox.createdAt);
  const isOver = hasEnded(sandbox);
  const current = state === "provisioning" ? phases.find(([phase]) => !times.has(phase))?.[0] : undefined;
  const now = useNow(current ? 500 : undefined);
  const since = (at: number) => `${((at - start) / 1000).toFixed(1)} s`;
  return (
    <ol className="phases" aria-label="Phases">
      {phases.map(([phase, text]) => {
        const at = times.get(phase);
        if (at !== undefined) return <Phase key={phase} kind="done" text={text} when={since(Date.parse(at))} at={at} />;
        if (phase === current) {
          return (
            <Phase key={phase} kind="now" text={text} when={since(Math.max(now, start))}>
              {phase === "image_pulled" && pull && <Pull {...pull} />}
            </Phase>
          );
        }
        return <Phase key={phase} kind={isOver ? "skipped" : "next"} text={text} />;
      })}
      {isOver && (
        <Phase
          kind={state === "failed" ? "failed" : "done"}
          text={`${state === "failed" ? "Failed" : "Stopped"}${sandbox.stateReason ? `: ${sandbox.stateReason.replaceAll("_", " ")}` : ""}`}
          {...(stoppedAt && { at: stoppedAt, when: spell(Math.round((Date.parse(stoppedAt) - start) / 1000)) })}
        />
      )}
    </ol>
  );
}

type PhaseKind = "done" | "now" | "next" | "skipped" | "failed";
const words: Record<PhaseKind, string> = {
  done: "done",
  now: "under way",
  next: "to come",
  skipped: "not reached",
  failed: "failed",
};

function Phase(o: { kind: PhaseKind; text: string; when?: string; at?: string; children?: React.ReactNode }) {
  return (
    <li className={o.kind === "skipped" ? "next" : o.kind}>
      <span className="mark">
        {o.kind === "done" && <Check aria-hidden />}
        {o.kind === "failed" && <X aria-hidden />}
        {o.kind === "skipped" && <Minus aria-hidden />}
        {o.kind === "now" && <Spinner />}
      </span>
      <span className="what">
        {o.text} <span className="visually-hidden">{words[o.kind]}</span>
      </span>
      <span className="when">
        {o.at ? (
          <time dateTime={o.at} title={new Date(o.at).toString()}>
            {o.when}
          </time>
        ) : (
          o.when
        )}
      </span>
      {o.children && <div className="more">{o.children}</div>}
    </li>
  );
}

function Pull({ downloadedBytes, totalBytes }: { downloadedBytes: number; totalBytes: number }) {
  return (
    <>
      <progress value={downloadedBytes} max={Math.max(totalBytes, 1)} aria-label="Image pull" />
      <span className="num">
        {bytes(downloadedBytes)} of {bytes(totalBytes)}
      </span>
    </>
  );
}

function Memory({ sandbox }: { sandbox: SandboxRecord }) {
  const { workspace, sandgate } = useWorkspace();
  const sample = useQuery({
    queryKey: [workspace.id, "sandbox", sandbox.id, "memory"],
    queryFn: async ({ signal }) => {
      const handle = await sandgate.sandboxes.get(sandbox.id, { signal });
      const metrics = await handle.metrics({ since: sandbox.createdAt, limit: 1, signal });
      return metrics.at(-1) ?? null;
    },
    refetchInterval: hasEnded(sandbox) ? false : liveMs,
  });
  const limit = sandbox.memoryMb * mebibyte;
  const used = sample.data?.memoryUsage;
  return (
    <section className="card">
      <header>
        <h2>Memory</h2>
        {used !== undefined && (
          <span className="muted num">
            {bytes(used)} of {bytes(limit)}
          </span>
        )}
      </header>
      {sample.isError && <Problem error={sample.error} />}
      {used === undefined ? (
        !sample.isError && <p className="muted">No sample yet; the first comes within seconds.</p>
      ) : (
        <>
          <meter min={0} max={limit} value={used} aria-label="Memory in use">
            {bytes(used)}
          </meter>
          <p className="muted">
            {hasEnded(sandbox) ? "At the end" : "At"} <Time at={sample.data?.timestamp} />:{" "}
            {Math.round((used / limit) * 100)} %
          </p>
        </>
      )}
    </section>
  );
}

function Record({ sandbox }: { sandbox: SandboxRecord }) {
  return (
    <section className="card">
      <h2>Record</h2>
      <dl className="record">
        <dt>Id</dt>
        <dd>
          <code>{sandbox.id}</code>
        </dd>
        <dt>Image</dt>
        <dd className="mono">{sandbox.image}</dd>
        {sandbox.imageDigest && (
          <>
            <dt>Digest</dt>
            <dd className="mono">{sandbox.imageDigest}</dd>
          </>
        )}
        {sandbox.command && (
          <>
            <dt>Command</dt>
            <dd className="mono">{sandbox.command.join(" ")}</dd>
          </>
        )}
        <dt>Labels</dt>
        <dd>
          <Labels labels={sandbox.labels} />
        </dd>
        <dt>Environment</dt>
        <dd className="mono">{sandbox.envNames.join(" ") || "the image's own"}</dd>
        <dt>Memory limit</dt>
        <dd>{sandbox.memoryMb} MiB</dd>
        <dt>Readiness port</dt>
        <dd>{sandbox.readinessPort ?? "none"}</dd>
        <dt>Time to live</dt>
        <dd>
          {sandbox.ttlSeconds === null ? "no limit" : `${sandbox.ttlSeconds} seconds (${spell(sandbox.ttlSeconds)})`}
        </dd>
        <dt>Idle time</dt>
        <dd>
          {sandbox.idleTimeoutSeconds === null ? "may be idle" : `stops after ${spell(sandbox.idleTimeoutSeconds)}`}
        </dd>
        <dt>Created</dt>
        <dd>
          <Time at={sandbox.createdAt} full />
        </dd>
        <dt>Last used</dt>
        <dd>
          <Time at={sandbox.lastUsedAt} full />
        </dd>
        <dt>{sandbox.stoppedAt ? "Ended" : "Expires"}</dt>
        <dd>
          <Time at={sandbox.stoppedAt ?? sandbox.expiresAt} full />
        </dd>
        {sandbox.exitCode !== null && (
          <>
            <dt>Exit code</dt>
            <dd>{sandbox.exitCode}</dd>
          </>
        )}
      </dl>
    </section>
  );
}
