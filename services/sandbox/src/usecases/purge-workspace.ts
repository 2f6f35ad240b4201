import type { Logger } from "@sandgate/kit/base/logging";
import { type PeriodicTask, startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { dayMs, hourMs } from "@sandgate/kit/base/time";
import { beginStop } from "../domain/sandbox.ts";
import type { Retention } from "../store/sandboxes.ts";
import type { SandboxStore } from "../store/store.ts";
import type { Changes } from "./changes.ts";

/** How many live sandboxes are stopped at once. */
const stopBatch = 100;
/** How many records are deleted in one transaction. */
const batchSize = 50;

/**
 * Stops a batch of a deleted workspace's live sandboxes; once none has a container any more, deletes their records.
 * True when all are gone.
 */
export async function purgeWorkspace(o: {
  store: Pick<SandboxStore, "sandboxes" | "retention">;
  changes: Changes;
  workspaceId: string;
  signal: AbortSignal;
}): Promise<boolean> {
  const { changes, workspaceId, signal } = o;
  const { sandboxes, retention } = o.store;
  // Listed by themselves: any number of sandboxes that wait for their cleaning would stand before them otherwise.
  const live = await retention.listLive(workspaceId, stopBatch);
  // All at once: SQLite commits writes together that wait together.
  await Promise.all(
    live.map(async (sandbox) => {
      if (await sandboxes.update(beginStop(sandbox, "workspace_deleted", new Date()), [])) {
        changes.announce(sandbox.id);
      }
    }),
  );
  if (live.length > 0 || (await retention.listUncleaned(workspaceId, 1)).length > 0) {
    return false;
  }
  while ((await retention.deleteCleaned(workspaceId, batchSize)) === batchSize) {
    if (signal.aborted) {
      return false;
    }
  }
  return true;
}

/** Every hour deletes the records of sandboxes that ended more than `retentionDays` ago. */
export function startRetention(o: { retention: Retention; retentionDays: number; logger: Logger }): PeriodicTask {
  return startPeriodicTask({
    what: "delete old sandbox records",
    everyMs: hourMs,
    logger: o.logger,
    async work(signal) {
      const before = new Date(Date.now() - o.retentionDays * dayMs);
      while (!signal.aborted && (await o.retention.deleteEndedBefore(before, batchSize)) === batchSize);
    },
  });
}
