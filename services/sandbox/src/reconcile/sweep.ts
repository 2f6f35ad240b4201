import { setTimeout as delay } from "node:timers/promises";
import { hasReason } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import { monotonicMs } from "@sandgate/kit/base/time";
import { createWakeup } from "@sandgate/kit/base/wakeup";
import { endOf, isLive } from "../domain/sandbox.ts";
import type { RuntimeLifecycle } from "../runtime/lifecycle.ts";
import type { SandboxStore } from "../store/store.ts";
import { readUnfinished } from "../usecases/unfinished-sandboxes.ts";
import type { DiskWatch } from "./disk-watch.ts";
import { containerLost } from "./failures.ts";
import { createOrphanRemoval } from "./orphans.ts";
import type { Records } from "./records.ts";
import type { RuntimeHealth } from "./runtime-health.ts";
import type { WorkQueue } from "./work-queue.ts";

const intervalMs = 10_000;
const shortestIntervalMs = 1_000;

export interface SweepOptions {
  store: Pick<SandboxStore, "sandboxes" | "unfinished">;
  runtime: RuntimeLifecycle;
  health: RuntimeHealth;
  records: Records;
  queue: WorkQueue;
  disk: Pick<DiskWatch, "replace">;
  owns(sandboxId: string): boolean;
  /** Remove orphans, however many there are. See `createOrphanRemoval`. */
  confirmOrphanRemoval: boolean;
  logger: Logger;
}

/** Keeps comparing all records with everything the runtime has, and so finds changes that no event reported. */
export interface Sweeps {
  start(): void;
  /** Begins the next sweep at once, though not within a second of the last. */
  request(): void;
  /** Why containers without a record are kept, if they are. */
  orphanProblem(): string | undefined;
  stop(): Promise<void>;
}

export function createSweeps(o: SweepOptions): Sweeps {
  const { store, runtime, health, records, queue, logger } = o;
  const orphanRemoval = createOrphanRemoval(o);
  const wakeup = createWakeup();
  const stopping = new AbortController();
  const { signal } = stopping;
  let ended = Promise.resolve();
  /** Live sandboxes that the last list did not show. */
  let missing = new Set<string>();

  /**
   * Returns true when another sweep is wanted soon. The list is taken first, since a record is always written before
   * its container is created.
   */
  async function sweep(): Promise<boolean> {
    await health.refresh();
    const [listedAt, listedAtMs] = [new Date(), monotonicMs()];
    const listed = await runtime.list();
    const orphans = new Map(listed.map((seen) => [seen.sandboxId, seen]));
    const missingNow = new Set<string>();
    const running = listed.filter(({ sandboxId, phase }) => phase === "running" && o.owns(sandboxId));
    o.disk.replace(new Set(running.map(({ sandboxId }) => sandboxId)), listedAtMs);
    for await (const sandbox of readUnfinished(store.unfinished)) {
      const seen = orphans.get(sandbox.id);
      orphans.delete(sandbox.id);
      if (!o.owns(sandbox.id)) {
        continue;
      }
      const hasRun = isLive(sandbox.state) && sandbox.startedAt !== undefined && sandbox.startedAt < listedAt;
      if (hasRun && !seen) {
        if (!missing.has(sandbox.id)) {
          missingNow.add(sandbox.id);
        } else if (!(await runtime.inspect(sandbox.id))) {
          await saveLost(sandbox.id);
        }
      }
      const end = endOf(sandbox);
      const leftMs = end && end.at.getTime() - Date.now();
      const isWell = sandbox.state === "ready" && seen?.phase === "running" && (leftMs === undefined || leftMs > 0);
      if (!isWell) queue.wake(sandbox.id);
      // After a restart no pass is planned. The list shows that this one runs, so its next pass is at its end.
      else if (leftMs !== undefined) queue.plan(sandbox.id, leftMs);
    }
    missing = missingNow;
    await orphanRemoval.remove([...orphans.values()], listed.length);
    return missing.size > 0;
  }

  async function saveLost(id: string): Promise<void> {
    const sandbox = await store.sandboxes.get(id);
    if (sandbox && isLive(sandbox.state)) await records.saveFailure(sandbox, containerLost);
  }

  async function sweepUntilStopped(): Promise<void> {
    while (!signal.aborted) {
      let isWantedSoon = false;
      try {
        isWantedSoon = await sweep();
      } catch (error) {
        if (hasReason(error, "RUNTIME_UNAVAILABLE")) {
          health.report(error);
        } else {
          logger.error({ err: error }, "comparing the records with the container engine failed; will retry");
        }
      }
      await delay(shortestIntervalMs, undefined, { signal, ref: false }).catch(() => {});
      if (!isWantedSoon) {
        await wakeup.wait(intervalMs - shortestIntervalMs, signal);
      }
    }
  }

  return {
    start() {
      ended = sweepUntilStopped();
    },
    request: () => wakeup.wake(),
    orphanProblem: orphanRemoval.problem,
    async stop() {
      stopping.abort();
      await ended;
      await orphanRemoval.stop();
    },
  };
}
