import type { Logger } from "@sandgate/kit/base/logging";
import { type PeriodicTask, startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { hourMs } from "@sandgate/kit/base/time";
import { nextForgotten } from "../domain/verified-layers.ts";
import type { Purges } from "../store/purges.ts";
import type { ImageRegistryStore } from "../store/store.ts";

/** Rows of a kind that are removed in one transaction. */
const batchSize = 200;

/** Forgets hourly which layers were verified long ago. */
export function startForgettingLayers(o: { store: ImageRegistryStore; logger: Logger }): PeriodicTask {
  const { verifiedLayers } = o.store;
  return startPeriodicTask({
    what: "forget where layers were verified long ago",
    everyMs: hourMs,
    logger: o.logger,
    async work(signal) {
      const now = new Date();
      for (let isDone = false; !isDone && !signal.aborted; ) {
        const { before, limit } = nextForgotten(now, await verifiedLayers.count(), batchSize);
        isDone = (await verifiedLayers.deleteBefore(before, limit)) < limit;
      }
    },
  });
}

/** Removes what a deleted workspace has here until the signal aborts; true once everything is gone. */
export async function purgeWorkspace(purges: Purges, workspaceId: string, signal: AbortSignal): Promise<boolean> {
  while (!(await purges.deleteBatch(workspaceId, batchSize))) if (signal.aborted) return false;
  return true;
}
