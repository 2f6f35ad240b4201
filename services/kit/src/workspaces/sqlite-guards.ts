import type { StagedEvent } from "../storage/outbox-store.ts";
import type { SqliteConnection } from "../storage/sqlite-connection.ts";
import type { Transaction, Transactions } from "../storage/transaction.ts";
import type { PurgeStore } from "./workspace-purges.ts";

/** What finds the guards of purged workspaces by their age. */
export const purgedIndex = "CREATE INDEX guards_purged ON guards (purged_at) WHERE purged_at IS NOT NULL;";

/**
 * The transactions that `createPurges` needs among a service's own. The table `guards` has a row for each workspace.
 */
export const purgeTransactions = {
  beginPurge(tx: Transaction, workspaceId: string, at: Date): void {
    tx.db.run(
      `INSERT INTO guards (workspace_id, deleted_at) VALUES (?, ?)
       ON CONFLICT DO UPDATE SET deleted_at = coalesce(deleted_at, excluded.deleted_at), purged_at = NULL`,
      workspaceId,
      at,
    );
  },

  completePurge(tx: Transaction, workspaceId: string, at: Date, events: readonly StagedEvent[]): void {
    const completed = tx.db.run(
      "UPDATE guards SET purged_at = ? WHERE workspace_id = ? AND deleted_at IS NOT NULL AND purged_at IS NULL",
      at,
      workspaceId,
    );
    if (completed > 0) tx.publish(events);
  },

  deletePurgedBefore(tx: Transaction, before: Date, limit: number): number {
    return tx.db.run(
      "DELETE FROM guards WHERE workspace_id IN (SELECT workspace_id FROM guards WHERE purged_at < ? LIMIT ?)",
      before,
      limit,
    );
  },
} satisfies Transactions;

/** Makes sure that the workspace has a guard. Returns false if the guard says that the workspace is deleted. */
export function passGuard(tx: Transaction, workspaceId: string): boolean {
  tx.db.run("INSERT INTO guards (workspace_id) VALUES (?) ON CONFLICT DO NOTHING", workspaceId);
  return tx.db.get("SELECT 1 FROM guards WHERE workspace_id = ? AND deleted_at IS NULL", workspaceId) !== undefined;
}

/** Creates a purge store over a service's guards. */
export function createPurges(
  read: SqliteConnection,
  write: Pick<PurgeStore, keyof typeof purgeTransactions>,
): PurgeStore {
  const idsOf = (rows: { workspace_id: string }[]) => rows.map((row) => row.workspace_id);
  return {
    beginPurge: (workspaceId, at) => write.beginPurge(workspaceId, at),
    completePurge: (workspaceId, at, events) => write.completePurge(workspaceId, at, events),
    deletePurgedBefore: (before, limit) => write.deletePurgedBefore(before, limit),
    async listOpenPurges() {
      return idsOf(read.all("SELECT workspace_id FROM guards WHERE deleted_at IS NOT NULL AND purged_at IS NULL"));
    },
    async listWorkspaces({ limit, afterId = "" }) {
      return idsOf(
        read.all(
          "SELECT workspace_id FROM guards WHERE deleted_at IS NULL AND workspace_id > ? ORDER BY workspace_id LIMIT ?",
          afterId,
          limit,
        ),
      );
    },
  };
}
