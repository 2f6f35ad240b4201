import type { PurgeStore } from "@sandgate/kit/workspaces/workspace-purges";
import type { PurgeLimits } from "../domain/removals.ts";

/** Purges of deleted workspaces. */
export interface Purges extends PurgeStore {
  /** Removes some of what the workspace has, no more than these limits. True when there may be more. */
  purgeBatch(workspaceId: string, limits: PurgeLimits): Promise<boolean>;
}
