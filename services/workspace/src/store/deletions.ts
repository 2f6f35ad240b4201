import type { DeletionRecord } from "../domain/deletions.ts";
import type { ChangeOutcome, WorkspaceChange } from "./workspaces.ts";

/** A deletion that begins. */
export interface NewDeletion {
  /** The services that have to purge the workspace. */
  readonly services: readonly string[];
  readonly deletedAt: Date;
  readonly announceAgainAt: Date;
}

/** Deletions of workspaces, until every service has purged. */
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
  /** Removes up to `limit` deletions that were complete before this time, and returns how many. */
  deleteCompletedBefore(before: Date, limit: number): Promise<number>;
  /** When the oldest open deletion began. */
  findOldestOpen(): Promise<Date | undefined>;
}
