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

/** Deletes the records of sandboxes that ended before `before`, until the signal aborts. */
export async function deleteOldRecords(retention: Retention, before: Date, signal: AbortSignal): Promise<void> {
  while (!signal.aborted && (await retention.deleteEndedBefore(before, batchSize)) === batchSize);
}
