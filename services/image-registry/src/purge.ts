import { workspacePurged } from "./events.ts";
import type { ImageRegistryStore } from "./store.ts";

/** Rows removed in one transaction, of each kind. */
const slice = 200;

/**
 * Removes what a deleted workspace has here, slice by slice, and tells that it is gone. Answers false when it was told to
 * stop before the end, or when the purge was opened again in the meantime.
 */
export async function purgeWorkspace(
  store: ImageRegistryStore,
  workspaceId: string,
  signal: AbortSignal,
): Promise<boolean> {
  // Read before the last look at the tables: a purge that is opened again after it is not taken for complete.
  const version = await store.findPurge(workspaceId);
  if (version === undefined) return true;
  while (!(await store.purgeSlice(workspaceId, slice))) {
    if (signal.aborted) return false;
  }
  const events = [workspacePurged(workspaceId, version + 1)];
  return (await store.completePurge(workspaceId, version, new Date(), events)) === "done";
}
