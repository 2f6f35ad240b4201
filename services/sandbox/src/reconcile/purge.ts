import { beginStop } from "../domain/sandbox.ts";
import type { SandboxStore } from "../store/store.ts";
import type { Changes } from "./changes.ts";

/** Live sandboxes that are stopped at once. */
const stopBatch = 100;
/** Records that are deleted in one transaction. */
const batchSize = 500;

/**
 * Stops a batch of a deleted workspace's live sandboxes; once none has a container any more, deletes their records. True when
 * all are gone.
 */
export async function purgeWorkspace(o: {
  store: SandboxStore;
  changes: Changes;
  workspaceId: string;
  signal: AbortSignal;
}): Promise<boolean> {
  const { store, changes, workspaceId, signal } = o;
  // Asked for by themselves: any number that wait for their cleaning stand before them otherwise.
  const live = await store.listLive(workspaceId, stopBatch);
  // At once: on SQLite what waits together is committed together.
  await Promise.all(
    live.map(async (sandbox) => {
      if (await store.update(beginStop(sandbox, "workspace_deleted", new Date()), [])) {
        changes.announce(sandbox.id);
      }
    }),
  );
  if (live.length > 0 || (await store.listUncleaned(workspaceId, 1)).length > 0) {
    return false;
  }
  while ((await store.deleteCleaned(workspaceId, batchSize)) === batchSize) {
    if (signal.aborted) {
      return false;
    }
  }
  return true;
}

/** Deletes the records of sandboxes that ended before `before`, until the signal aborts. */
export async function deleteOldRecords(store: SandboxStore, before: Date, signal: AbortSignal): Promise<void> {
  while (!signal.aborted && (await store.deleteEndedBefore(before, batchSize)) === batchSize);
}
