import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import type { sourceTransactions } from "./sources.sqlite.transactions.ts";
import type { Sources } from "./sources.ts";

interface SandboxRow {
  workspaceId: string;
  logs: number;
  metrics: number;
  /** The sources that are not final. */
  open: number;
}

export function createSources({
  read,
  write,
}: Pick<SqliteDatabase<typeof sourceTransactions>, "read" | "write">): Sources {
  const isDeletedGuard = "SELECT 1 FROM guards WHERE workspace_id = ? AND deleted_at IS NOT NULL";
  return {
    append: (batch, options) => write.appendBatch(batch, options),
    async findSandbox(sandboxId) {
      const row = read.get<SandboxRow>(
        `SELECT workspace_id AS workspaceId, logs_sequence AS logs, metrics_sequence AS metrics,
           (SELECT count(*) FROM sources WHERE sandbox_id = s.sandbox_id AND NOT final) AS open
         FROM sandboxes s WHERE sandbox_id = ?`,
        sandboxId,
      );
      return (
        row && {
          workspaceId: row.workspaceId,
          sequences: { logs: row.logs, metrics: row.metrics },
          final: row.open === 0,
        }
      );
    },
    async isContainerDrained({ sandboxId, workspaceId, containerId }) {
      const found = read.get(
        `SELECT 1 FROM sources WHERE sandbox_id = ? AND container_id = ? AND kind = 'logs' AND final
         UNION ALL ${isDeletedGuard}`,
        sandboxId,
        containerId,
        workspaceId,
      );
      return found !== undefined;
    },
    async isSandboxDrained({ sandboxId, workspaceId }) {
      const found = read.get(
        `SELECT 1 FROM (SELECT min(final) AS final FROM sources WHERE sandbox_id = ? AND kind = 'logs') WHERE final
         UNION ALL ${isDeletedGuard}`,
        sandboxId,
        workspaceId,
      );
      return found !== undefined;
    },
  };
}
