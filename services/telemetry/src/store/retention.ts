import type { PurgeLimits } from "../domain/removals.ts";

/** Removes what is too old, too much, or of a deleted workspace: some at a time, so that no transaction takes long. */
export interface Retention {
  /** Removes some of what is older than `before`. True when there may be more. */
  sweepExpired(before: Date): Promise<boolean>;
  /**
   * Removes the oldest lines of the workspace that has most, as for its own quota, while all workspaces have more than
   * `totalBytes`. Returns how many lines, and whether there may be more to remove.
   */
  trimTotal(totalBytes: number): Promise<{ lines: number; more: boolean }>;
  /** Removes some of what the workspace has, no more than these limits. True when there may be more. */
  purgeBatch(workspaceId: string, limits: PurgeLimits): Promise<boolean>;
}
