import type { HandlerContext } from "@connectrpc/connect";
import { followSignal } from "@sandgate/kit/base/abort";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { callOf, workspaceOf } from "@sandgate/kit/rpc/context";
import type { AuditedUse } from "../domain/audited-uses.ts";
import type { Sandbox } from "../domain/sandbox.ts";
import type { Sandboxes } from "../store/sandboxes.ts";
import type { Changes } from "../usecases/changes.ts";
import { endedError, requireReady } from "../usecases/require-ready.ts";
import type { SandboxUse } from "../usecases/sandbox-use.ts";
import type { UseRecorder } from "../usecases/use-recorder.ts";
import type { HelperConnection, HelperConnections } from "./helper-connections.ts";
import { fromHelperError, isRefusal } from "./helper-errors.ts";
import type { OperationMetrics } from "./metrics.ts";

/** How often the state of a sandbox in use is read, since the signal of its change can be lost. */
const rereadMs = 1_000;

/** A sandbox that a call uses, and the way to its helper. */
export interface SandboxHelper extends HelperConnection {
  readonly sandbox: Sandbox;
  /** Aborts when the caller leaves, the sandbox begins to stop, or the process drains. */
  readonly signal: AbortSignal;
  /**
   * Does what the audit log tells of: with success, or as what may have been done if that fails otherwise than by a
   * refusal.
   */
  audited<T>(use: HelperUse, work: () => Promise<T>): Promise<T>;
}

/** What the audit log tells of a use. */
export type HelperUse = Pick<AuditedUse, "action" | "details" | "id">;

/** What handlers of operations use. Errors of the helper become DomainErrors. */
export interface SandboxHelpers {
  /**
   * Runs work with the helper of a ready sandbox of the call's workspace, which counts as use until it ends. Throws
   * SANDBOX_NOT_FOUND, SANDBOX_NOT_READY, or CONFLICT for one that has ended or is about to.
   */
  call<T>(context: HandlerContext, idOrName: string, work: (helper: SandboxHelper) => Promise<T>): Promise<T>;
  /** The same for work that yields. */
  stream<T>(
    context: HandlerContext,
    idOrName: string,
    work: (helper: SandboxHelper) => AsyncIterable<T>,
  ): AsyncGenerator<T>;
  /** The same for a sandbox that the call's user need not know. */
  streamOf<T>(
    context: HandlerContext,
    sandbox: Sandbox,
    work: (helper: SandboxHelper) => AsyncIterable<T>,
  ): AsyncGenerator<T>;
}

export function createSandboxHelpers(o: {
  sandboxes: Pick<Sandboxes, "find" | "get">;
  changes: Changes;
  connections: HelperConnections;
  use: SandboxUse;
  recorder: UseRecorder;
  draining: AbortSignal;
  metrics: Pick<OperationMetrics, "seconds" | "open">;
}): SandboxHelpers {
  const watchEnd = createEndWatch(o);

  /** Whoever enters must leave. */
  async function enter(context: HandlerContext, found: Sandbox | undefined) {
    const sandbox = requireReady(found);
    const ends = new AbortController();
    followSignal(ends, context.signal);
    const stopWatching = watchEnd(sandbox.id, ends);
    const release = o.use.hold(sandbox.id);
    const call = context.method.name;
    const observe = o.metrics.seconds.startTimer({ call });
    o.metrics.open.inc({ call });
    const leave = () => {
      observe();
      o.metrics.open.dec({ call });
      stopWatching();
      release();
    };
    const { signal } = ends;
    const explain = (error: unknown): unknown => (signal.aborted ? signal.reason : fromHelperError(error));
    const audited: SandboxHelper["audited"] = async (use, work) => {
      const record = (outcome: AuditedUse["outcome"]) =>
        o.recorder.record(callOf(context), {
          ...use,
          outcome,
          workspaceId: sandbox.workspaceId,
          sandboxId: sandbox.id,
        });
      try {
        const result = await work();
        record("success");
        return result;
      } catch (error) {
        if (!isRefusal(fromHelperError(error))) record("upstream_error");
        throw error;
      }
    };
    try {
      const { transport, info, openData, takeChannel } = await o.connections.open(sandbox.id, signal);
      return { helper: { sandbox, transport, info, openData, takeChannel, signal, audited }, leave, explain };
    } catch (error) {
      leave();
      throw explain(error);
    }
  }

  const find = (context: HandlerContext, idOrName: string) => o.sandboxes.find(workspaceOf(callOf(context)), idOrName);

  async function* streamFrom<T>(
    context: HandlerContext,
    read: () => Promise<Sandbox | undefined>,
    work: (helper: SandboxHelper) => AsyncIterable<T>,
  ): AsyncGenerator<T> {
    const { helper, leave, explain } = await enter(context, await read());
    try {
      yield* work(helper);
    } catch (error) {
      throw explain(error);
    } finally {
      leave();
    }
  }

  return {
    async call(context, idOrName, work) {
      const { helper, leave, explain } = await enter(context, await find(context, idOrName));
      try {
        return await work(helper);
      } catch (error) {
        throw explain(error);
      } finally {
        leave();
      }
    },

    stream: (context, idOrName, work) => streamFrom(context, () => find(context, idOrName), work),
    streamOf: (context, sandbox, work) => streamFrom(context, async () => sandbox, work),
  };
}

/** The same as `audited` for work that yields: once it has yielded something, it is done. */
export async function* auditedStream<T>(
  { audited }: Pick<SandboxHelper, "audited">,
  use: HelperUse,
  parts: AsyncGenerator<T>,
): AsyncGenerator<T> {
  try {
    const first = await audited(use, () => parts.next());
    if (!first.done) yield first.value;
    yield* parts;
  } finally {
    await parts.return(undefined);
  }
}

/** Aborts calls with the reason when their sandbox is no longer ready, or the process drains. */
function createEndWatch(o: { sandboxes: Pick<Sandboxes, "get">; changes: Changes; draining: AbortSignal }) {
  const watched = new Map<string, { calls: Set<AbortController>; stop(): void }>();
  const draining = () => new DomainError("DRAINING", "The server is shutting down.");
  const abortAll = (calls: Iterable<AbortController>, reason: DomainError) => {
    for (const call of calls) call.abort(reason);
  };
  o.draining.addEventListener("abort", () => {
    for (const { calls } of watched.values()) abortAll(calls, draining());
  });

  function begin(sandboxId: string) {
    const calls = new Set<AbortController>();
    const check = async () => {
      const sandbox = await o.sandboxes.get(sandboxId).catch(() => undefined);
      if (sandbox && sandbox.state !== "ready") abortAll(calls, endedError(sandbox));
    };
    const unlisten = o.changes.listen((id) => {
      if (id === sandboxId) void check();
    });
    const rereading = setInterval(() => void check(), rereadMs).unref();
    const stop = () => {
      unlisten();
      clearInterval(rereading);
    };
    return { calls, stop };
  }

  /** Returns what stops it. */
  return (sandboxId: string, call: AbortController): (() => void) => {
    const watch = watched.get(sandboxId) ?? begin(sandboxId);
    watched.set(sandboxId, watch);
    watch.calls.add(call);
    if (o.draining.aborted) call.abort(draining());
    return () => {
      watch.calls.delete(call);
      if (watch.calls.size > 0) return;
      watched.delete(sandboxId);
      watch.stop();
    };
  };
}
