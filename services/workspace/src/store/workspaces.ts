import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { Stale } from "@sandgate/kit/storage/optimistic";
import type { AccountDeleted, OwnsTooMany } from "../domain/accounts.ts";
import type { WorkspaceQuotaOwner } from "../domain/quota-owners.ts";
import type { Quotas } from "../domain/quotas.ts";
import type { WorkspacePosition, WorkspaceRecord, WorkspaceVersion, WorkspaceView } from "../domain/workspaces.ts";
import type { NewDeletion } from "./deletions.ts";

/**
 * A change of a workspace or its members. It commits together with its events, and only on the version of the workspace
 * that it was decided on. So the rules that were checked on what was read still hold when it commits.
 */
export interface WorkspaceChange extends WorkspaceVersion {
  readonly events: readonly StagedEvent[];
}

/** `stale`: the workspace has changed since the version that was read, or is gone. */
export type ChangeOutcome = "done" | Stale;

/** A transaction counts what a quota limits, and takes turns with every other one that could make the number grow. */
export interface Workspaces {
  /** Undefined when there is no such workspace; for others than members the role is unspecified. */
  find(workspaceId: string, userId: string): Promise<WorkspaceView | undefined>;
  /** Workspaces that don't exist are left out. */
  findMany(workspaceIds: readonly string[], userId: string): Promise<WorkspaceView[]>;
  /** Workspaces that don't exist are left out. */
  findQuotaOwners(workspaceIds: readonly string[]): Promise<WorkspaceQuotaOwner[]>;
  /** The user's workspaces, those that the user owns first, then by role; the newest first, by creation. */
  list(userId: string, after: WorkspacePosition | undefined, limit: number): Promise<WorkspaceView[]>;
  /** The id of the oldest workspace that the user owns and is the quota owner of; undefined when there is none. */
  findDefault(userId: string): Promise<string | undefined>;

  /** The owner is the new workspace's quota owner too. */
  create(
    workspace: WorkspaceRecord,
    ownerId: string,
    quotas: Quotas,
    events: readonly StagedEvent[],
    record: IdempotencyRecord | undefined,
  ): Promise<"done" | AccountDeleted | OwnsTooMany>;
  /** Creates the user's personal workspace, unless it has been created before or the account is deleted. */
  createPersonal(workspace: WorkspaceRecord, ownerId: string, events: readonly StagedEvent[]): Promise<void>;
  rename(change: WorkspaceChange, name: string, at: Date): Promise<ChangeOutcome>;
  /** Removes the workspace and all its members, and opens the deletion. */
  delete(change: WorkspaceChange, deletion: NewDeletion): Promise<ChangeOutcome>;
}
