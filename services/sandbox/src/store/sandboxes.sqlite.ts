import type { Sandbox, SandboxState } from "../domain/sandbox.ts";
import { createDecoder, decodeRow, type Row, rowColumns } from "./sandbox-rows.sqlite.ts";
import type { Retention, SandboxActivity, Sandboxes, UnfinishedSandboxes } from "./sandboxes.ts";
import type { Database } from "./store.sqlite.ts";

const select = `SELECT ${rowColumns} FROM sandboxes`;

export function createSandboxes({ read, remember, query, write }: Database): Sandboxes {
  const decode = createDecoder();
  const one = (where: string, ...parameters: string[]): Sandbox | undefined => {
    const row = read.get<Row>(`${select} WHERE ${where}`, ...parameters);
    return row && decode(row);
  };
  const byId = remember((id) => one("id = ?", id));

  return {
    async create(sandbox, o, signal) {
      signal?.throwIfAborted();
      await write.createSandbox(sandbox, o);
    },
    update: write.updateSandbox,
    async get(id) {
      return byId(id);
    },
    async findSealedEnv(id) {
      return read.get<{ sealed: Uint8Array }>("SELECT sealed FROM envs WHERE id = ?", id)?.sealed;
    },
    async find(workspaceId, idOrName) {
      const sandbox = byId(idOrName);
      if (sandbox?.workspaceId === workspaceId) return sandbox;
      const named = "workspace_id = ? AND name = ?";
      return (
        one(`${named} AND state IN ('provisioning', 'ready')`, workspaceId, idOrName) ??
        one(`${named} ORDER BY created_at DESC, id DESC LIMIT 1`, workspaceId, idOrName)
      );
    },
    async list(workspaceId, { states, labels, namePrefix }, { limit, after, signal }) {
      const wanted = Object.entries(labels).map(([name, value]) => ({ name, value }));
      const list = { workspaceId, states, labels: wanted, namePrefix };
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
  };
}

interface UnfinishedRow {
  id: string;
  state: SandboxState;
  startedAt: string | null;
  readyAt: string | null;
  lastUsedAt: number | null;
  idleTimeoutSeconds: number | null;
  expiresAt: string | null;
  pinnedReference: string | null;
}

export function createUnfinishedSandboxes({ read, write }: Database): UnfinishedSandboxes {
  return {
    async list({ limit, afterId = "" }) {
      const rows = read.all<UnfinishedRow>(
        `SELECT id, state, last_used_at AS lastUsedAt, record ->> '$.startedAt' AS startedAt,
           record ->> '$.readyAt' AS readyAt, record ->> '$.expiresAt' AS expiresAt,
           record ->> '$.idleTimeoutSeconds' AS idleTimeoutSeconds, record ->> '$.pinnedReference' AS pinnedReference
         FROM sandboxes WHERE cleaned_at IS NULL AND id > ? ORDER BY id LIMIT ?`,
        afterId,
        limit,
      );
      return rows.map(
        ({ id, state, startedAt, readyAt, lastUsedAt, idleTimeoutSeconds, expiresAt, pinnedReference }) => ({
          id,
          state,
          ...(readyAt !== null && { readyAt: new Date(readyAt) }),
          ...(lastUsedAt !== null && { lastUsedAt: new Date(lastUsedAt) }),
          ...(idleTimeoutSeconds !== null && { idleTimeoutSeconds }),
          ...(startedAt !== null && { startedAt: new Date(startedAt) }),
          ...(expiresAt !== null && { expiresAt: new Date(expiresAt) }),
          ...(pinnedReference !== null && { pinnedReference }),
        }),
      );
    },
    async countByState() {
      const rows = read.all<{ state: SandboxState; count: number }>(
        `SELECT state, count(*) AS count FROM sandboxes INDEXED BY sandboxes_unfinished_by_state
         WHERE cleaned_at IS NULL AND state > '' GROUP BY state`,
      );
      return Object.fromEntries(rows.map(({ state, count }) => [state, count]));
    },
    markCleaned: write.markCleaned,
  };
}

export function createActivity({ write, publishOnce }: Database): SandboxActivity {
  return { recordUses: write.recordUses, recordPull: write.recordPull, stageUses: publishOnce };
}

export function createRetention({ read, write }: Database): Retention {
  const list = (condition: string, workspaceId: string, limit: number) =>
    read.all<Row>(`${select} ${condition} AND workspace_id = ? LIMIT ?`, workspaceId, limit).map(decodeRow);
  return {
    listLive: async (workspaceId, limit) => list("WHERE state IN ('provisioning', 'ready')", workspaceId, limit),
    // Named, as the planner would go through all that have ended.
    listUncleaned: async (workspaceId, limit) =>
      list("INDEXED BY sandboxes_uncleaned WHERE cleaned_at IS NULL", workspaceId, limit),
    deleteCleaned: write.deleteCleaned,
    deleteEndedBefore: write.deleteEndedBefore,
  };
}
