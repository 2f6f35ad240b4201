import { newId } from "@sandgate/kit/base/ids";
import { type SqliteStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import { openSqlite } from "@sandgate/kit/storage/sqlite";
import { createPurges } from "@sandgate/kit/workspaces/sqlite-guards";
import type { Sandbox, SandboxState } from "../domain/sandbox.ts";
import { migrations, type transactions } from "./store.sqlite.transactions.ts";
import type { SandboxStore } from "./store.ts";

interface Row {
  record: string;
  cleaned_at: number | null;
}

/** T as JSON holds it: with its dates as text. */
type Stored<T> = T extends Date ? string : T extends object ? { [K in keyof T]: Stored<T[K]> } : T;

/**
 * The record as `encodeRecord` wrote it. Each of its dates is named here, since a label may look like one; one that is
 * forgotten doesn't compile.
 */
function decodeRow(row: Row): Sandbox {
  const stored: Stored<Omit<Sandbox, "cleanedAt">> = JSON.parse(row.record);
  const { createdAt, updatedAt, startedAt, readyAt, expiresAt, stoppedAt, timeline, ...rest } = stored;
  return {
    ...rest,
    createdAt: new Date(createdAt),
    updatedAt: new Date(updatedAt),
    ...(startedAt !== undefined && { startedAt: new Date(startedAt) }),
    ...(readyAt !== undefined && { readyAt: new Date(readyAt) }),
    ...(expiresAt !== undefined && { expiresAt: new Date(expiresAt) }),
    ...(stoppedAt !== undefined && { stoppedAt: new Date(stoppedAt) }),
    timeline: timeline.map(({ at, ...entry }) => ({ ...entry, at: new Date(at) })),
    ...(row.cleaned_at !== null && { cleanedAt: new Date(row.cleaned_at) }),
  };
}

/** Opens the SQLite file of sandboxes; creates or migrates it first. */
export async function openSqliteStore(o: SqliteStoreOptions): Promise<SandboxStore> {
  const database = await openSqlite<typeof transactions>({
    file: o.file,
    migrations,
    transactions: new URL("./store.sqlite.transactions.ts", import.meta.url),
    logger: o.logger,
  });
  const { read, write } = database;
  const one = (sql: string, ...parameters: (string | number)[]): Sandbox | undefined => {
    const row = read.get<Row>(sql, ...parameters);
    return row && decodeRow(row);
  };
  const many = (sql: string, ...parameters: (string | number)[]): Sandbox[] =>
    read.all<Row>(sql, ...parameters).map(decodeRow);

  return {
    ...serviceStoreOf(database),
    ...createPurges(read, write),
    installationId: () => write.installationId(newId()),
    create: (sandbox, quotas, events, record) => write.create(sandbox, quotas, events, record),
    update: (sandbox, events) => write.update(sandbox, events),
    markCleaned: (id, at) => write.markCleaned(id, at),
    async get(id) {
      return one("SELECT record, cleaned_at FROM sandboxes WHERE id = ?", id);
    },
    async find(workspaceId, idOrName) {
      return (
        one("SELECT record, cleaned_at FROM sandboxes WHERE id = ? AND workspace_id = ?", idOrName, workspaceId) ??
        one(
          `SELECT record, cleaned_at FROM sandboxes WHERE workspace_id = ? AND name = ?
           ORDER BY state IN ('provisioning', 'ready') DESC, created_at DESC, id DESC LIMIT 1`,
          workspaceId,
          idOrName,
        )
      );
    },
    async list(workspaceId, filter, page) {
      const conditions = ["workspace_id = ?"];
      const parameters: (string | number)[] = [workspaceId];
      if (page.after) {
        conditions.push("(created_at, id) < (?, ?)");
        parameters.push(page.after.createdAt.getTime(), page.after.id);
      }
      if (filter.states.length > 0) {
        conditions.push("state IN (SELECT value FROM json_each(?))");
        parameters.push(JSON.stringify(filter.states));
      }
      for (const [key, value] of Object.entries(filter.labels)) {
        conditions.push("EXISTS (SELECT 1 FROM json_each(record, '$.labels') WHERE key = ? AND value = ?)");
        parameters.push(key, value);
      }
      return many(
        `SELECT record, cleaned_at FROM sandboxes WHERE ${conditions.join(" AND ")}
         ORDER BY created_at DESC, id DESC LIMIT ?`,
        ...parameters,
        page.limit,
      );
    },
    async listUnfinished(page) {
      return many(
        "SELECT record, cleaned_at FROM sandboxes WHERE cleaned_at IS NULL AND id > ? ORDER BY id LIMIT ?",
        page.afterId ?? "",
        page.limit,
      );
    },
    async countByState() {
      const rows = read.all<{ state: SandboxState; count: number }>(
        "SELECT state, count(*) AS count FROM sandboxes WHERE cleaned_at IS NULL GROUP BY state",
      );
      return Object.fromEntries(rows.map((row) => [row.state, row.count]));
    },
    async listLive(workspaceId, limit) {
      return many(
        `SELECT record, cleaned_at FROM sandboxes WHERE workspace_id = ? AND state IN ('provisioning', 'ready') LIMIT ?`,
        workspaceId,
        limit,
      );
    },
    async listUncleaned(workspaceId, limit) {
      return many(
        "SELECT record, cleaned_at FROM sandboxes WHERE workspace_id = ? AND cleaned_at IS NULL LIMIT ?",
        workspaceId,
        limit,
      );
    },
    deleteCleaned: (workspaceId, limit) => write.deleteCleaned(workspaceId, limit),
    deleteEndedBefore: (before, limit) => write.deleteEndedBefore(before, limit),
  };
}
