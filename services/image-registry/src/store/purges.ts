import type { PurgeStore } from "@sandgate/kit/workspaces/workspace-purges";

/** The purge of deleted workspaces. */
export interface Purges extends PurgeStore {
  /** Removes up to `limit` of each of the workspace's images and registries; true when none is left. */
  deleteBatch(workspaceId: string, limit: number): Promise<boolean>;
}
