import { type SqliteStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import { openSqlite } from "@sandgate/kit/storage/sqlite";
import { createPurges } from "@sandgate/kit/workspaces/sqlite-guards";
import { migrations, type transactions } from "./store.sqlite.transactions.ts";
import type { StoredChunk, TelemetryStore } from "./store.ts";

const chunkColumns = "first_sequence AS firstSequence, last_us AS lastUs, body";

/** Opens the SQLite file of logs and samples, after creating or migrating it. */
export async function openSqliteStore(o: SqliteStoreOptions): Promise<TelemetryStore> {
  const database = await openSqlite<typeof transactions>({
    file: o.file,
    migrations,
    transactions: new URL("./store.sqlite.transactions.ts", import.meta.url),
    logger: o.logger,
  });
  const { read, write } = database;

  return {
    ...serviceStoreOf(database),
    ...createPurges(read, write),
    appendBatch: (batch, options) => write.appendBatch(batch, options),
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
    async listChunks({ sandboxId, kind, sinceUs, untilUs, stream, after, limit }) {
      return read.all<StoredChunk>(
        `SELECT ${chunkColumns} FROM chunks
         WHERE sandbox_id = ? AND kind = ? AND last_us >= ? AND first_us <= ?
           AND (last_us, first_sequence) < (?, ?) ${stream ? `AND ${stream}_rows > 0` : ""}
         ORDER BY last_us DESC, first_sequence DESC LIMIT ?`,
        sandboxId,
        kind,
        sinceUs,
        untilUs,
        after?.lastUs ?? Number.MAX_SAFE_INTEGER,
        after?.firstSequence ?? Number.MAX_SAFE_INTEGER,
        limit,
      );
    },
    async listChunksAfter({ sandboxId, kind, sequence, limit }) {
      return read.all<StoredChunk>(
        `SELECT ${chunkColumns} FROM chunks WHERE sandbox_id = ? AND kind = ? AND last_sequence > ?
         ORDER BY last_sequence LIMIT ?`,
        sandboxId,
        kind,
        sequence,
        limit,
      );
    },
    sweepExpired: (before) => write.sweepExpired(before),
    purgeBatch: (workspaceId, limits) => write.purgeBatch(workspaceId, limits),
  };
}
