import type { Cursor } from "@sandgate/kit/base/page";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { ServiceStore } from "@sandgate/kit/storage/open-store";
import type { Role } from "@sandgate/proto/common/v1/access";

export interface WorkspaceRecord {
  readonly id: string;
  readonly name: string;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  /** Grows with every change of the workspace or of its members. */
  readonly version: number;
}

/** A workspace as one user sees it. */
export interface WorkspaceView extends WorkspaceRecord {
  /** Unspecified: not a member. */
  readonly role: Role;
}

export interface MemberRecord {
  readonly userId: string;
  readonly role: Role;
  readonly joinedAt: Date;
}

/** A workspace with all that the rules about one member ask. */
export interface MemberView {
  readonly workspace: WorkspaceView;
  readonly member: MemberRecord | undefined;
  readonly owners: number;
}

/** A deletion that some service has still to purge. */
export interface DeletionRecord {
  readonly workspaceId: string;
  readonly deletedAt: Date;
  /** How often `workspace.deleted` has been announced. */
  readonly announcements: number;
  /** The entity version of the last announcement. */
  readonly version: number;
}

/**
 * `stale`: the workspace has changed since the version that was read (or is gone); read again and decide again.
 * `departed`: the user's account has been deleted.
 */
export type Outcome = "done" | "stale" | "departed";

/**
 * Workspaces, members and deletions. Every change names the version of the workspace it was decided on and commits
 * only on that one, together with its events; so the rules that were checked on what was read hold when it commits.
 */
export interface WorkspaceStore extends ServiceStore {
  findWorkspace(workspaceId: string, userId: string): Promise<WorkspaceView | undefined>;
  findMember(workspaceId: string, userId: string, actorId: string): Promise<MemberView | undefined>;
  /** What is not found is left out. */
  findWorkspaces(workspaceIds: readonly string[], userId: string): Promise<WorkspaceView[]>;
  /** Newest first, by creation. */
  listWorkspaces(userId: string, after: Cursor | undefined, limit: number): Promise<WorkspaceView[]>;
  /** Newest first, by joining. */
  listMembers(workspaceId: string, after: Cursor | undefined, limit: number): Promise<MemberRecord[]>;
  /** Whether the personal workspace has been made, be it deleted since. */
  hadPersonalWorkspace(userId: string): Promise<boolean>;

  createWorkspace(
    workspace: WorkspaceRecord,
    ownerId: string,
    events: readonly StagedEvent[],
    record: IdempotencyRecord | undefined,
  ): Promise<"done" | "departed">;
  /** Makes the user's personal workspace unless it has been made before; then nothing happens and nothing is sent. */
  createPersonalWorkspace(workspace: WorkspaceRecord, ownerId: string, events: readonly StagedEvent[]): Promise<void>;
  renameWorkspace(workspaceId: string, version: number, name: string, at: Date): Promise<Outcome>;
  /** Removes the workspace and all its members, and opens a deletion with a line for each of these services. */
  deleteWorkspace(
    workspaceId: string,
    version: number,
    services: readonly string[],
    at: Date,
    announceAgainAt: Date,
    events: readonly StagedEvent[],
  ): Promise<Outcome>;
  addMember(
    workspaceId: string,
    version: number,
    member: MemberRecord,
    events: readonly StagedEvent[],
    record: IdempotencyRecord | undefined,
  ): Promise<Outcome>;
  changeRole(workspaceId: string, version: number, userId: string, role: Role): Promise<Outcome>;
  removeMember(workspaceId: string, version: number, userId: string, events: readonly StagedEvent[]): Promise<Outcome>;

  /** From now on nothing new can be made for this user. */
  markDeparted(userId: string, at: Date): Promise<void>;

  /** Ticks a service's line off; the deletion is complete with the last one. Unknown lines and repeats do nothing. */
  recordPurge(workspaceId: string, service: string, at: Date): Promise<void>;
  /** Open deletions that are due to be announced again. */
  listDueDeletions(now: Date, limit: number): Promise<DeletionRecord[]>;
  announceDeletion(
    workspaceId: string,
    version: number,
    announceAgainAt: Date,
    events: readonly StagedEvent[],
  ): Promise<Outcome>;
  /** When the oldest open deletion was made. */
  oldestOpenDeletion(): Promise<Date | undefined>;
}
