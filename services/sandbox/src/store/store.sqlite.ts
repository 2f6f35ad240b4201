import { deepFreeze } from "@sandgate/kit/base/freeze";
import { newId } from "@sandgate/kit/base/ids";
import { type SqliteStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import { openSqlite } from "@sandgate/kit/storage/sqlite";
import { createPurges } from "@sandgate/kit/workspaces/sqlite-guards";
import type { Sandbox, SandboxState } from "../domain/sandbox.ts";
import type { queries, Row } from "./store.sqlite.queries.ts";
import { migrations, type transactions } from "./store.sqlite.transactions.ts";
import type { SandboxStore } from "./store.ts";

interface UnfinishedRow {
  id: string;
  state: SandboxState;
  startedAt: string | null;
  expiresAt: string | null;
  pinnedReference: string | null;
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

/** Records remembered in decoded form, of a few KB each. */
const maxRemembered = 1_000;

/**
 * `decodeRow` for records that are read one at a time, often the same again: clients ask until a sandbox is ready, and a pass of
 * the reconciler reads several times. Decoding costs more than reading. The text of the record is the key, so what is
 * remembered is never old.
 */
function createDecoder(): (row: Row) => Sandbox {
  const remembered = new Map<string, { cleanedAt: number | null; sandbox: Sandbox }>();
  return (row) => {
    const known = remembered.get(row.record);
    if (known && known.cleanedAt === row.cleaned_at) return known.sandbox;
    const sandbox = deepFreeze(decodeRow(row));
    if (remembered.size >= maxRemembered) remembered.clear();
    remembered.set(row.record, { cleanedAt: row.cleaned_at, sandbox });
    return sandbox;
  };
}

/** Opens the SQLite file of sandboxes; creates or migrates it first. */
export async function openSqliteStore(o: SqliteStoreOptions): Promise<SandboxStore> {
  const database = await openSqlite<typeof transactions, typeof queries>({
    file: o.file,
    migrations,
    transactions: new URL("./store.sqlite.transactions.ts", import.meta.url),
    queries: new URL("./store.sqlite.queries.ts", import.meta.url),
    logger: o.logger,
  });
  const { read, query, write } = database;
  const decode = createDecoder();
  const one = (sql: string, ...parameters: (string | number)[]): Sandbox | undefined => {
    const row = read.get<Row>(sql, ...parameters);
    return row && decode(row);
  };
  const byId = database.remember((id) => one("SELECT record, cleaned_at FROM sandboxes WHERE id = ?", id));
  const many = (sql: string, ...parameters: (string | number)[]): Sandbox[] =>
    read.all<Row>(sql, ...parameters).map(decodeRow);

  return {
    ...serviceStoreOf(database),
    ...createPurges(read, write),
    installationId: () => write.installationId(newId()),
    async create(sandbox, charge, quotas, events, record, signal) {
      signal?.throwIfAborted();
      await write.create(sandbox, charge, quotas, events, record);
    },
    chargeWorkspace: (workspaceId, charge) => write.chargeWorkspace(workspaceId, charge),
    async listUncharged({ limit, afterId = "" }) {
      const rows = read.all<{ workspace_id: string }>(
        `SELECT workspace_id FROM guards WHERE charged_to IS NULL AND live_count > 0 AND workspace_id > ?
         ORDER BY workspace_id LIMIT ?`,
        afterId,
        limit,
      );
      return rows.map((row) => row.workspace_id);
    },
    update: (sandbox, events) => write.update(sandbox, events),
    markCleaned: (id, at) => write.markCleaned(id, at),
    async get(id) {
      return byId(id);
    },
    async find(workspaceId, idOrName) {
      const sandbox = byId(idOrName);
      if (sandbox?.workspaceId === workspaceId) return sandbox;
      const select = "SELECT record, cleaned_at FROM sandboxes";
      return (
        one(
          `${select} WHERE workspace_id = ? AND name = ? AND state IN ('provisioning', 'ready')`,
          workspaceId,
          idOrName,
        ) ??
        one(
          `${select} WHERE workspace_id = ? AND name = ? ORDER BY created_at DESC, id DESC LIMIT 1`,
          workspaceId,
          idOrName,
        )
      );
    },
    async list(workspaceId, { states, labels }, { limit, after, signal }) {
      const wanted = Object.entries(labels).map(([name, value]) => ({ name, value }));
      const list = { workspaceId, states, labels: wanted };
      if (wanted.length > 1) list.labels = await query.orderByRarity(list);
      const found: Sandbox[] = [];
      let position = after;
      do {
        signal?.throwIfAborted();
        const { rows, next } = await query.list(list, position, limit - found.length);
        for (const row of rows) found.push(decodeRow(row));
        position = next;
      } while (position && found.length < limit);
      return found;
    },
    async listAll(filter, { limit, after }) {
      return (await query.listAll(filter, after, limit)).map(decodeRow);
    },
    async listUnfinished({ limit, afterId = "" }) {
      const rows = read.all<UnfinishedRow>(
        `SELECT id, state, record ->> '$.startedAt' AS startedAt, record ->> '$.expiresAt' AS expiresAt,
           record ->> '$.pinnedReference' AS pinnedReference
         FROM sandboxes WHERE cleaned_at IS NULL AND id > ? ORDER BY id LIMIT ?`,
        afterId,
        limit,
      );
      return rows.map(({ id, state, startedAt, expiresAt, pinnedReference }) => ({
        id,
        state,
        ...(startedAt !== null && { startedAt: new Date(startedAt) }),
        ...(expiresAt !== null && { expiresAt: new Date(expiresAt) }),
        ...(pinnedReference !== null && { pinnedReference }),
      }));
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
    recordImageUse: (use) => write.recordImageUse(use),
    async listImageUses() {
      const rows = read.all<{ name: string; used_at: number }>("SELECT name, used_at FROM image_uses");
      return rows.map((row) => ({ name: row.name, at: new Date(row.used_at) }));
    },
    forgetImageUses: (names) => write.forgetImageUses(names),
    deleteEndedBefore: (before, limit) => write.deleteEndedBefore(before, limit),
  };
}
