import type { QueryConnection, SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import type { SandboxRecord, StoredSource } from "../domain/batches.ts";
import type { sourceTransactions } from "./sources.sqlite.transactions.ts";
import type { Sources } from "./sources.ts";

export function createSources({
  read,
  write,
}: Pick<SqliteDatabase<typeof sourceTransactions>, "read" | "write">): Sources {
  return {
    async append(batch, { signal, ...o }) {
      signal?.throwIfAborted();
      return write.appendBatch(batch, o);
    },
    findSandbox: async (sandboxId) => readSandbox(read, sandboxId),
    async isWorkspaceDeleted(workspaceId) {
      const deleted = "SELECT 1 FROM guards WHERE workspace_id = ? AND deleted_at IS NOT NULL";
      return read.get(deleted, workspaceId) !== undefined;
    },
  };
}

export function readSandbox(db: QueryConnection, sandboxId: string): SandboxRecord | undefined {
  const row = db.get<{ workspaceId: string; logs: number; metrics: number }>(
    `SELECT workspace_id AS workspaceId, logs_sequence AS logs, metrics_sequence AS metrics
     FROM sandboxes WHERE sandbox_id = ?`,
    sandboxId,
  );
  if (!row) return undefined;
  const sources = db.all<Omit<StoredSource, "final"> & { final: number }>(
    "SELECT container_id AS containerId, kind, cursor, final FROM sources WHERE sandbox_id = ?",
    sandboxId,
  );
  const { workspaceId, ...sequences } = row;
  return { workspaceId, sequences, sources: sources.map((source) => ({ ...source, final: source.final === 1 })) };
}
