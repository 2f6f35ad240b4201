import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import type { deletionTransactions } from "./deletions.sqlite.transactions.ts";
import type { Deletions } from "./deletions.ts";

type DeletionRow = { workspace_id: string; deleted_at: number; announcements: number; version: number };

export function createDeletions({ read, write }: SqliteDatabase<typeof deletionTransactions>): Deletions {
  return {
    recordPurge: write.recordPurge,
    announce: write.announceDeletion,
    deleteCompletedBefore: write.deleteCompletedBefore,

    async listDue(now, limit) {
      return read
        .all<DeletionRow>(
          `SELECT workspace_id, deleted_at, announcements, version FROM deletions
           WHERE completed_at IS NULL AND announce_again_at <= ? ORDER BY announce_again_at LIMIT ?`,
          now,
          limit,
        )
        .map(({ workspace_id, deleted_at, announcements, version }) => ({
          workspaceId: workspace_id,
          deletedAt: new Date(deleted_at),
          announcements,
          version,
        }));
    },

    async findOldestOpen() {
      const row = read.get<{ oldest: number | null }>(
        "SELECT min(deleted_at) AS oldest FROM deletions WHERE completed_at IS NULL",
      );
      return row?.oldest == null ? undefined : new Date(row.oldest);
    },
  };
}
