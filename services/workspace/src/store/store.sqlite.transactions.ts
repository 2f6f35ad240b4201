import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { Stale } from "@sandgate/kit/storage/optimistic";
import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import type { Role } from "@sandgate/proto/common/v1/access";
import type { Caps } from "../domain/caps.ts";
import type { MemberRecord, TakeOver, WorkspaceRecord } from "./store.ts";

function isAccountDeleted(tx: Transaction, userId: string): boolean {
  return tx.db.get("SELECT 1 FROM departed_users WHERE user_id = ?", userId) !== undefined;
}

/** Whether as many workspaces are charged to the user as the caps allow. */
function ownsTooMany(tx: Transaction, userId: string, { maxOwned }: Caps): boolean {
  if (maxOwned === 0) return false;
  return tx.db.all("SELECT 1 FROM workspaces WHERE charged_to = ? LIMIT ?", userId, maxOwned).length === maxOwned;
}

function hasTooManyMembers(tx: Transaction, workspaceId: string, { maxMembers }: Caps): boolean {
  if (maxMembers === 0) return false;
  const members = tx.db.all("SELECT 1 FROM members WHERE workspace_id = ? LIMIT ?", workspaceId, maxMembers);
  return members.length === maxMembers;
}

function insertMember(tx: Transaction, workspaceId: string, { userId, role, joinedAt }: MemberRecord): void {
  tx.db.run(
    `INSERT INTO members (workspace_id, user_id, role, joined_at, workspace_created_at)
     VALUES (:workspaceId, :userId, :role, :joinedAt, (SELECT created_at FROM workspaces WHERE id = :workspaceId))`,
    { workspaceId, userId, role, joinedAt },
  );
}

function insertWorkspace(tx: Transaction, workspace: WorkspaceRecord, owner: MemberRecord): void {
  const { id, name, createdAt, updatedAt, version } = workspace;
  tx.db.run(
    `INSERT INTO workspaces (id, name, created_at, updated_at, version, charged_to, charged_since)
     VALUES (?, ?, ?, ?, ?, ?, ?)`,
    id,
    name,
    createdAt,
    updatedAt,
    version,
    owner.userId,
    version,
  );
  insertMember(tx, id, owner);
}

/** Moves the workspace on from `version`; false when it has another version or is gone. */
function advance(tx: Transaction, workspaceId: string, version: number): boolean {
  return (
    tx.db.run("UPDATE workspaces SET version = version + 1 WHERE id = ? AND version = ?", workspaceId, version) === 1
  );
}

/**
 * The same for a change of a member, with which its caller may take the workspace over, unless they own too many. Nothing has
 * changed unless it returns `done`.
 */
function advanceWith(
  tx: Transaction,
  workspaceId: string,
  version: number,
  takeOver: TakeOver | undefined,
): "done" | Stale | "owns_too_many" {
  if (takeOver && ownsTooMany(tx, takeOver.userId, takeOver.caps)) return "owns_too_many";
  if (!advance(tx, workspaceId, version)) return "stale";
  if (takeOver) {
    tx.db.run(
      "UPDATE workspaces SET charged_to = ?, charged_since = version WHERE id = ?",
      takeOver.userId,
      workspaceId,
    );
    tx.publish([takeOver.event]);
  }
  return "done";
}

export const transactions = {
  createWorkspace(
    tx: Transaction,
    workspace: WorkspaceRecord,
    owner: MemberRecord,
    caps: Caps,
    events: readonly StagedEvent[],
    record: IdempotencyRecord | undefined,
  ): "done" | "account_deleted" | "owns_too_many" {
    if (isAccountDeleted(tx, owner.userId)) {
      return "account_deleted";
    }
    if (ownsTooMany(tx, owner.userId, caps)) {
      return "owns_too_many";
    }
    tx.keepIdempotencyRecord(record);
    insertWorkspace(tx, workspace, owner);
    tx.publish(events);
    return "done";
  },

  createPersonalWorkspace(
    tx: Transaction,
    workspace: WorkspaceRecord,
    owner: MemberRecord,
    events: readonly StagedEvent[],
  ): void {
    const marked = tx.db.run("INSERT OR IGNORE INTO personal_workspaces (user_id) VALUES (?)", owner.userId) === 1;
    if (marked && !isAccountDeleted(tx, owner.userId)) {
      insertWorkspace(tx, workspace, owner);
      tx.publish(events);
    }
  },

  renameWorkspace(
    tx: Transaction,
    workspaceId: string,
    version: number,
    name: string,
    at: Date,
    events: readonly StagedEvent[],
  ): "done" | Stale {
    if (!advance(tx, workspaceId, version)) {
      return "stale";
    }
    tx.db.run("UPDATE workspaces SET name = ?, updated_at = ? WHERE id = ?", name, at, workspaceId);
    tx.publish(events);
    return "done";
  },

  deleteWorkspace(
    tx: Transaction,
    workspaceId: string,
    version: number,
    services: readonly string[],
    at: Date,
    announceAgainAt: Date,
    events: readonly StagedEvent[],
  ): "done" | Stale {
    if (tx.db.run("DELETE FROM workspaces WHERE id = ? AND version = ?", workspaceId, version) === 0) {
      return "stale";
    }
    tx.db.run("DELETE FROM members WHERE workspace_id = ?", workspaceId);
    tx.db.run(
      `INSERT INTO deletions (workspace_id, deleted_at, announcements, announce_again_at, version)
       VALUES (?, ?, 1, ?, ?)`,
      workspaceId,
      at,
      announceAgainAt,
      version + 1,
    );
    for (const service of services) {
      tx.db.run("INSERT INTO deletion_purges (workspace_id, service) VALUES (?, ?)", workspaceId, service);
    }
    tx.publish(events);
    return "done";
  },

  addMember(
    tx: Transaction,
    workspaceId: string,
    version: number,
    member: MemberRecord,
    caps: Caps,
    events: readonly StagedEvent[],
    record: IdempotencyRecord | undefined,
  ): "done" | Stale | "account_deleted" | "too_many_members" {
    if (isAccountDeleted(tx, member.userId)) {
      return "account_deleted";
    }
    if (hasTooManyMembers(tx, workspaceId, caps)) {
      return "too_many_members";
    }
    if (!advance(tx, workspaceId, version)) {
      return "stale";
    }
    tx.keepIdempotencyRecord(record);
    insertMember(tx, workspaceId, member);
    tx.publish(events);
    return "done";
  },

  changeRole(
    tx: Transaction,
    workspaceId: string,
    version: number,
    userId: string,
    role: Role,
    events: readonly StagedEvent[],
    takeOver: TakeOver | undefined,
  ): "done" | Stale | "owns_too_many" {
    const outcome = advanceWith(tx, workspaceId, version, takeOver);
    if (outcome === "done") {
      tx.db.run("UPDATE members SET role = ? WHERE workspace_id = ? AND user_id = ?", role, workspaceId, userId);
      tx.publish(events);
    }
    return outcome;
  },

  removeMember(
    tx: Transaction,
    workspaceId: string,
    version: number,
    userId: string,
    events: readonly StagedEvent[],
    takeOver: TakeOver | undefined,
  ): "done" | Stale | "owns_too_many" {
    const outcome = advanceWith(tx, workspaceId, version, takeOver);
    if (outcome === "done") {
      tx.db.run("DELETE FROM members WHERE workspace_id = ? AND user_id = ?", workspaceId, userId);
      tx.publish(events);
    }
    return outcome;
  },

  markAccountDeleted(tx: Transaction, userId: string, at: Date): void {
    tx.db.run("INSERT OR IGNORE INTO departed_users (user_id, departed_at) VALUES (?, ?)", userId, at);
  },

  recordPurge(tx: Transaction, workspaceId: string, service: string, at: Date): void {
    tx.db.run(
      "UPDATE deletion_purges SET purged_at = ? WHERE workspace_id = ? AND service = ? AND purged_at IS NULL",
      at,
      workspaceId,
      service,
    );
    tx.db.run(
      `UPDATE deletions SET completed_at = ? WHERE workspace_id = ? AND completed_at IS NULL AND NOT EXISTS
         (SELECT 1 FROM deletion_purges p WHERE p.workspace_id = deletions.workspace_id AND p.purged_at IS NULL)`,
      at,
      workspaceId,
    );
  },

  announceDeletion(
    tx: Transaction,
    workspaceId: string,
    version: number,
    announceAgainAt: Date,
    events: readonly StagedEvent[],
  ): "done" | Stale {
    const announced = tx.db.run(
      `UPDATE deletions SET version = version + 1, announcements = announcements + 1, announce_again_at = ?
       WHERE workspace_id = ? AND version = ? AND completed_at IS NULL`,
      announceAgainAt,
      workspaceId,
      version,
    );
    if (announced === 0) {
      return "stale";
    }
    tx.publish(events);
    return "done";
  },
} satisfies Transactions;
