import type { Logger } from "@sandgate/kit/base/logging";
import { monotonicMs } from "@sandgate/kit/base/time";
import type { Counter } from "prom-client";
import {
  beginStop,
  completeStop,
  endOf,
  graceSeconds,
  hasExpired,
  type Sandbox,
  stopReasonOf,
} from "../domain/sandbox.ts";
import type { RuntimeLifecycle } from "../runtime/lifecycle.ts";
import type { SandboxStore } from "../store/store.ts";
import type { DiskWatch } from "./disk-watch.ts";
import type { Records } from "./records.ts";
import type { Retries } from "./retries.ts";
import type { Next } from "./work-queue.ts";

export interface LifecycleOptions {
  store: Pick<SandboxStore, "activity" | "sandboxes" | "unfinished">;
  runtime: RuntimeLifecycle;
  records: Records;
  retries: Retries;
  /**
   * Resolves true when the ended container's logs were read to the end, false when that took too long. Rejects when
   * nobody can be asked.
   */
  awaitDrained(sandboxId: string, signal: AbortSignal): Promise<boolean>;
  /** Records the uses of sandboxes that this process knows of. */
  recordUses(): Promise<void>;
  /** When a command of ours ran in a sandbox last: now, if one does. Undefined: nobody knows of any. */
  findLastRun(sandboxId: string): Promise<Date | undefined>;
  disk: Pick<DiskWatch, "failureOf">;
  limits: {
    /** How long the question is repeated while nobody answers. */
    drainTimeoutMs: number;
  };
  /** Asks for a sweep soon. */
  requestSweep(): void;
  logger: Logger;
  metrics: { logsLost: Counter };
}

/** The steps of a sandbox that has been provisioned. */
export interface Lifecycle {
  watchReady(sandbox: Sandbox): Promise<Next>;
  finishStop(sandbox: Sandbox): Promise<Next>;
  /** Removes an ended sandbox's container, once its logs were read to the end. */
  clean(sandbox: Sandbox, signal: AbortSignal): Promise<Next>;
}

export function createLifecycle(o: LifecycleOptions): Lifecycle {
  const { store, runtime, records, retries, logger } = o;
  const { drainTimeoutMs } = o.limits;

  /** False: reading took too long, or nobody could be asked all that time. Throws when another attempt makes sense. */
  async function isDrained(id: string, signal: AbortSignal): Promise<boolean> {
    const askedAt = monotonicMs();
    try {
      return await o.awaitDrained(id, signal);
    } catch (error) {
      if (!signal.aborted && retries.isDownTooLong(id, "telemetry", drainTimeoutMs, monotonicMs() - askedAt)) {
        return false;
      }
      throw error;
    }
  }

  /** True when there was a later use than its record shows, which does then. */
  async function isInUse({ id, lastUsedAt }: Sandbox): Promise<boolean> {
    await o.recordUses();
    // What was never used runs nothing of ours.
    const lastRun = lastUsedAt && (await o.findLastRun(id));
    if (lastRun) await store.activity.recordUses([{ sandboxId: id, at: lastRun }]);
    const now = await store.sandboxes.get(id);
    return now?.lastUsedAt?.getTime() !== lastUsedAt?.getTime();
  }

  return {
    async watchReady(sandbox) {
      const { id } = sandbox;
      const now = new Date();
      // Whatever the engine or the sandbox says.
      if (hasExpired(sandbox, now)) {
        await records.save(beginStop(sandbox, "ttl_expired", now));
        return "again";
      }
      const seen = await runtime.inspect(id);
      if (seen?.phase === "exited") {
        await records.saveEnd(sandbox, seen);
        return "again";
      }
      const full = o.disk.failureOf(id);
      if (full) {
        await records.saveFailure(sandbox, full);
        return "again";
      }
      const end = endOf(sandbox);
      if (end && end.at <= now) {
        // Uses that this process knows of may not be recorded yet, and a command may run that nobody waits for.
        if (!(await isInUse(sandbox))) await records.save(beginStop(sandbox, end.reason, new Date()));
        return "again";
      }
      if (!seen) {
        // One missing answer doesn't prove that the container is gone; two complete lists do.
        o.requestSweep();
      }
      retries.forget(id);
      return end ? { retryInMs: Math.max(0, end.at.getTime() - Date.now()) } : "idle";
    },

    async finishStop(sandbox) {
      // A stop during the pull leaves nothing to stop; a container that ended by itself keeps its own exit code.
      await runtime.stop(sandbox.id, graceSeconds(stopReasonOf(sandbox)));
      const seen = await runtime.inspect(sandbox.id);
      const exit = seen?.exitCode === undefined ? {} : { exitCode: seen.exitCode };
      // The stop may have come between the container's start and the record of it.
      const started = await records.saveStart(sandbox, seen);
      if (started) {
        await records.save(completeStop(started, exit, new Date()));
      }
      return "again";
    },

    async clean({ id, stateReason }, signal) {
      await runtime.stop(id, 0);
      // Nobody will ask for the logs of a deleted workspace.
      const seen = stateReason === "workspace_deleted" ? undefined : await runtime.inspect(id);
      // The container shows whether there can be logs; the record doesn't.
      if (seen?.startedAt && !(await isDrained(id, signal))) {
        o.metrics.logsLost.inc();
        logger.warn({ sandboxId: id }, "a container is removed before its logs were read to the end");
      }
      await runtime.remove(id);
      await store.unfinished.markCleaned(id, new Date());
      retries.forget(id);
      return "idle";
    },
  };
}
