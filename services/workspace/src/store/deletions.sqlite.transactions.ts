import type { Transaction, TransactionOf } from "@sandgate/kit/storage/sqlite";
import type { Deletions, NewDeletion } from "./deletions.ts";
import type { WorkspaceChange } from "./workspaces.ts";

export function insertDeletion(
  tx: Transaction,
  { workspaceId, version }: WorkspaceChange,
  { services, deletedAt, announceAgainAt }: NewDeletion,
): void {
  tx.db.run(
    `INSERT INTO deletions (workspace_id, deleted_at, announcements, announce_again_at, version)
     VALUES (?, ?, 1, ?, ?)`,
    workspaceId,
    deletedAt,
    announceAgainAt,
    version + 1,
  );
  for (const service of services) {
    tx.db.run("INSERT INTO deletion_purges (workspace_id, service) VALUES (?, ?)", workspaceId, service);
  }
}

export const deletionTransactions = {
  recordPurge(tx, workspaceId, service, at) {
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

  announceDeletion(tx, announcement, announceAgainAt) {
    const announced = tx.db.run(
      `UPDATE deletions SET version = version + 1, announcements = announcements + 1, announce_again_at = ?
       WHERE workspace_id = ? AND version = ? AND completed_at IS NULL`,
      announceAgainAt,
      announcement.workspaceId,
      announcement.version,
    );
    if (announced === 0) return "stale";
    tx.publish(announcement.events);
    return "done";
  },

  deleteCompletedBefore(tx, before, limit) {
    const completed = "SELECT workspace_id FROM deletions WHERE completed_at < ? ORDER BY completed_at LIMIT ?";
    tx.db.run(`DELETE FROM deletion_purges WHERE workspace_id IN (${completed})`, before, limit);
    return tx.db.run(`DELETE FROM deletions WHERE workspace_id IN (${completed})`, before, limit);
  },
} satisfies {
  recordPurge: TransactionOf<Deletions["recordPurge"]>;
  announceDeletion: TransactionOf<Deletions["announce"]>;
  deleteCompletedBefore: TransactionOf<Deletions["deleteCompletedBefore"]>;
};
