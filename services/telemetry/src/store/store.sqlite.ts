import { type SqliteStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import { openSqlite } from "@sandgate/kit/storage/sqlite";
import { createPurges } from "@sandgate/kit/workspaces/sqlite-guards";
import { createSqliteAuditStore } from "./audit.sqlite.ts";
import type { queries } from "./store.sqlite.queries.ts";
import { migrations, totalLogBytes, type transactions } from "./store.sqlite.transactions.ts";
import type { TelemetryStore } from "./store.ts";

/** Opens the SQLite file of logs and samples, after creating or migrating it. */
export async function openSqliteStore(o: SqliteStoreOptions): Promise<TelemetryStore> {
  const database = await openSqlite<typeof transactions, typeof queries>({
    file: o.file,
    migrations,
    transactions: new URL("./store.sqlite.transactions.ts", import.meta.url),
    queries: new URL("./store.sqlite.queries.ts", import.meta.url),
    // Chunks of logs are large.
    ownWriter: true,
    logger: o.logger,
  });
  const { read, query, write } = database;

  return {
    ...serviceStoreOf(database),
    ...createPurges(read, write),
    ...createSqliteAuditStore(database),
    appendBatch: (batch, options) => write.appendBatch(batch, options),
    async trimTotal(totalBytes) {
      // Asked here first, so that the file is written only when there is something to do.
      const isOver = totalLogBytes(read) > totalBytes;
      return isOver ? write.trimTotal(totalBytes) : { lines: 0, more: false };
    },
    // Only this program writes the file, so what is counted is right.
    recountLogs: async () => undefined,
    reusableBytes() {
      const pages = read.get<{ freelist_count: number }>("PRAGMA freelist_count")?.freelist_count ?? 0;
      return pages * (read.get<{ page_size: number }>("PRAGMA page_size")?.page_size ?? 0);
    },
    async findSandbox(sandboxId) {
      const row = read.get<{
        workspace_id: string;
        logs_sequence: number;
        metrics_sequence: number;
        open: number | null;
      }>(
        `SELECT workspace_id, logs_sequence, metrics_sequence,
           (SELECT count(*) FROM sources WHERE sandbox_id = s.sandbox_id AND NOT final) AS open
         FROM sandboxes s WHERE sandbox_id = ?`,
        sandboxId,
      );
      return (
        row && {
          workspaceId: row.workspace_id,
          sequences: { logs: row.logs_sequence, metrics: row.metrics_sequence },
          final: row.open === 0,
        }
      );
    },
    async isDrained({ sandboxId, workspaceId, containerId }) {
      const found = read.get(
        `SELECT 1 FROM sources WHERE sandbox_id = ? AND container_id = ? AND kind = 'logs' AND final
         UNION ALL SELECT 1 FROM guards WHERE workspace_id = ? AND deleted_at IS NOT NULL`,
        sandboxId,
        containerId,
        workspaceId,
      );
      return found !== undefined;
    },
    async isSandboxDrained({ sandboxId, workspaceId }) {
      const found = read.get(
        `SELECT 1 FROM (SELECT min(final) AS final FROM sources WHERE sandbox_id = ? AND kind = 'logs') WHERE final
         UNION ALL SELECT 1 FROM guards WHERE workspace_id = ? AND deleted_at IS NOT NULL`,
        sandboxId,
        workspaceId,
      );
      return found !== undefined;
    },
    listChunks: (chunks) => query.listChunks(chunks),
    listChunksAfter: (chunks) => query.listChunksAfter(chunks),
    sweepExpired: (before) => write.sweepExpired(before),
    purgeBatch: (workspaceId, limits) => write.purgeBatch(workspaceId, limits),
  };
}
