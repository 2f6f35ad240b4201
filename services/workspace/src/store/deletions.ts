import type { DeletionRecord } from "../domain/deletions.ts";
import type { ChangeOutcome, WorkspaceChange } from "./workspaces.ts";

/** The deletion of a workspace, as it is opened. */
export interface NewDeletion {
  /** Those that have to purge what they hold of the workspace. */
  readonly services: readonly string[];
  readonly deletedAt: Date;
  readonly announceAgainAt: Date;
}

/** Deletions of workspaces that services have still to purge. */
export interface Deletions {
  /**
   * Records that a service has purged; the last one completes the deletion. Unknown services and repeats change
   * nothing.
   */
  recordPurge(workspaceId: string, service: string, at: Date): Promise<void>;
  /** Open deletions that are due to be announced again. */
  listDue(now: Date, limit: number): Promise<DeletionRecord[]>;
  /** Publishes the next announcement; `stale` when another replica has, or when the deletion is complete. */
  announce(announcement: WorkspaceChange, announceAgainAt: Date): Promise<ChangeOutcome>;
  /** When the oldest open deletion began. */
  findOldestOpen(): Promise<Date | undefined>;
}
