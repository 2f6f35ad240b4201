import type { Cursor } from "@sandgate/kit/base/page";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { ServiceStore } from "@sandgate/kit/storage/open-store";
import type { Stale } from "@sandgate/kit/storage/optimistic";
import type { Role } from "@sandgate/proto/common/v1/access";
import type { Caps } from "../domain/caps.ts";
import type { Charge } from "../domain/charges.ts";

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

/** A workspace and one of its members, with all that the rules about members need. */
export interface MemberView {
  readonly workspace: WorkspaceView;
  readonly member: MemberRecord | undefined;
  readonly owners: number;
  /** Undefined only for a workspace of an older version, until `chargeFirstOwners`. */
  readonly charge: Charge | undefined;
}

/** The charge of a workspace, as the services that count what it holds ask for it. */
export interface WorkspaceCharge extends Charge {
  readonly workspaceId: string;
  /** The user is no owner any more, and nobody else has taken the workspace over. */
  readonly abandoned: boolean;
}

/** A change of a member with which its caller takes the workspace over. */
export interface TakeOver {
  readonly userId: string;
  readonly caps: Caps;
  readonly event: StagedEvent;
}

/** A deletion that a service has still to purge. */
export interface DeletionRecord {
  readonly workspaceId: string;
  readonly deletedAt: Date;
  /** How often `workspace.deleted` has been announced. */
  readonly announcements: number;
  /** The entity version of the last announcement. */
  readonly version: number;
}

/** `stale`: the workspace has changed since the version that was read, or is gone. */
type Outcome = "done" | Stale;
/** The user's account has been deleted. */
type AccountDeleted = "account_deleted";
/** As many workspaces are charged to the user as the caps allow. */
type OwnsTooMany = "owns_too_many";

/**
 * Workspaces, members and deletions. Every change names the version of the workspace that it was decided on and commits
 * only on that version, together with its events; so the rules that were checked on what was read hold when it commits.
 * What is capped is counted in the transaction, which takes turns with all that could make the number grow.
 */
export interface WorkspaceStore extends ServiceStore {
  /** Undefined when there is no such workspace; for others than members the role is unspecified. */
  findWorkspace(workspaceId: string, userId: string): Promise<WorkspaceView | undefined>;
  /** The workspace as `actorId` sees it, with the membership of `userId`; undefined when there is no such workspace. */
  findMember(workspaceId: string, userId: string, actorId: string): Promise<MemberView | undefined>;
  /** What is not found is left out. */
  findWorkspaces(workspaceIds: readonly string[], userId: string): Promise<WorkspaceView[]>;
  /** What is not found is left out. */
  findCharges(workspaceIds: readonly string[]): Promise<WorkspaceCharge[]>;
  /** Newest first, by creation. */
  listWorkspaces(userId: string, after: Cursor | undefined, limit: number): Promise<WorkspaceView[]>;
  /** Newest first, by joining. */
  listMembers(workspaceId: string, after: Cursor | undefined, limit: number): Promise<MemberRecord[]>;
  /** Whether the personal workspace has ever been created; it may have been deleted since. */
  hadPersonalWorkspace(userId: string): Promise<boolean>;

  /** The new workspace is charged to its owner. */
  createWorkspace(
    workspace: WorkspaceRecord,
    ownerId: string,
    caps: Caps,
    events: readonly StagedEvent[],
    record: IdempotencyRecord | undefined,
  ): Promise<"done" | AccountDeleted | OwnsTooMany>;
  /** Creates the user's personal workspace, unless it has been created before or the account is deleted. It is never too many. */
  createPersonalWorkspace(workspace: WorkspaceRecord, ownerId: string, events: readonly StagedEvent[]): Promise<void>;
  renameWorkspace(
    workspaceId: string,
    version: number,
    name: string,
    at: Date,
    events: readonly StagedEvent[],
  ): Promise<Outcome>;
  /** Removes the workspace and all its members, and opens a deletion that each of these services has to purge. */
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
    caps: Caps,
    events: readonly StagedEvent[],
    record: IdempotencyRecord | undefined,
  ): Promise<Outcome | AccountDeleted | "too_many_members">;
  changeRole(
    workspaceId: string,
    version: number,
    userId: string,
    role: Role,
    events: readonly StagedEvent[],
    takeOver: TakeOver | undefined,
  ): Promise<Outcome | OwnsTooMany>;
  removeMember(
    workspaceId: string,
    version: number,
    userId: string,
    events: readonly StagedEvent[],
    takeOver: TakeOver | undefined,
  ): Promise<Outcome | OwnsTooMany>;
  /** Charges each workspace that an older version created, which knew of no charges, to the owner who joined first. */
  chargeFirstOwners(): Promise<void>;

  /** From now on the user can neither create nor join a workspace. */
  markAccountDeleted(userId: string, at: Date): Promise<void>;

  /** Notes that a service has purged; the last one completes the deletion. Unknown services and repeats change nothing. */
  recordPurge(workspaceId: string, service: string, at: Date): Promise<void>;
  /** Open deletions that are due to be announced again. */
  listDueDeletions(now: Date, limit: number): Promise<DeletionRecord[]>;
  /** Publishes the next announcement; `stale` when another replica has, or when the deletion is complete. */
  announceDeletion(
    workspaceId: string,
    version: number,
    announceAgainAt: Date,
    events: readonly StagedEvent[],
  ): Promise<Outcome>;
  /** When the oldest open deletion began. */
  oldestOpenDeletion(): Promise<Date | undefined>;
}
