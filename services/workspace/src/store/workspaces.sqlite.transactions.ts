import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { Transaction, TransactionOf } from "@sandgate/kit/storage/sqlite";
import { decideCreateWorkspace, mayCreatePersonalWorkspace } from "../domain/accounts.ts";
import { type MemberRecord, ownerOf } from "../domain/members.ts";
import type { WorkspaceRecord } from "../domain/workspaces.ts";
import { readAccount } from "./accounts.sqlite.transactions.ts";
import { insertDeletion } from "./deletions.sqlite.transactions.ts";
import type { ChangeOutcome, WorkspaceChange, Workspaces } from "./workspaces.ts";

/**
 * Moves the workspace on from the version that the change names, and applies the change; `stale` on any other version.
 */
export function changeWorkspace(
  tx: Transaction,
  { workspaceId, version, events }: WorkspaceChange,
  apply: () => void,
): ChangeOutcome {
  const sql = "UPDATE workspaces SET version = version + 1 WHERE id = ? AND version = ?";
  if (tx.db.run(sql, workspaceId, version) === 0) return "stale";
  apply();
  tx.publish(events);
  return "done";
}

export function insertMember(tx: Transaction, workspaceId: string, { userId, role, joinedAt }: MemberRecord): void {
  tx.db.run(
    `INSERT INTO members (workspace_id, user_id, role, joined_at, workspace_created_at)
     VALUES (:workspaceId, :userId, :role, :joinedAt, (SELECT created_at FROM workspaces WHERE id = :workspaceId))`,
    { workspaceId, userId, role, joinedAt },
  );
}

function insertWorkspace(
  tx: Transaction,
  { id, name, createdAt, updatedAt, version }: WorkspaceRecord,
  owner: MemberRecord,
  events: readonly StagedEvent[],
): void {
  tx.db.run(
    `INSERT INTO workspaces (id, name, created_at, updated_at, version, charged_to, charged_since)
     VALUES (:id, :name, :createdAt, :updatedAt, :version, :ownerId, :version)`,
    { id, name, createdAt, updatedAt, version, ownerId: owner.userId },
  );
  insertMember(tx, id, owner);
  tx.publish(events);
}

export const workspaceTransactions = {
  createWorkspace(tx, workspace, ownerId, quotas, events, record) {
    const outcome = decideCreateWorkspace(readAccount(tx, ownerId, quotas.maxOwned), quotas);
    if (outcome !== "done") return outcome;
    tx.keepIdempotencyRecord(record);
    insertWorkspace(tx, workspace, ownerOf(workspace, ownerId), events);
    return "done";
  },

  createPersonalWorkspace(tx, workspace, ownerId, events) {
    if (!mayCreatePersonalWorkspace(readAccount(tx, ownerId))) return;
    tx.db.run("INSERT INTO personal_workspaces (user_id) VALUES (?)", ownerId);
    insertWorkspace(tx, workspace, ownerOf(workspace, ownerId), events);
  },

  renameWorkspace(tx, change, name, at) {
    return changeWorkspace(tx, change, () => {
      tx.db.run("UPDATE workspaces SET name = ?, updated_at = ? WHERE id = ?", name, at, change.workspaceId);
    });
  },

  deleteWorkspace(tx, change, deletion) {
    return changeWorkspace(tx, change, () => {
      tx.db.run("DELETE FROM workspaces WHERE id = ?", change.workspaceId);
      tx.db.run("DELETE FROM members WHERE workspace_id = ?", change.workspaceId);
      insertDeletion(tx, change, deletion);
    });
  },
} satisfies {
  createWorkspace: TransactionOf<Workspaces["create"]>;
  createPersonalWorkspace: TransactionOf<Workspaces["createPersonal"]>;
  renameWorkspace: TransactionOf<Workspaces["rename"]>;
  deleteWorkspace: TransactionOf<Workspaces["delete"]>;
};
