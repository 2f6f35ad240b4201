import { DomainError } from "@sandgate/kit/base/domain-error";
import type { QueryConnection, SqliteMigration, Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { passGuard, purgeTransactions } from "@sandgate/kit/workspaces/sqlite-guards";
import { auditMigration, auditTransactions } from "./audit.sqlite.transactions.ts";
import { type Chunk, type ChunkKind, fitsInto, mergeChunks, type PurgeLimits, takePurgeBatch } from "./chunks.ts";
import { type LogQuotas, overQuota } from "./quotas.ts";
import type { Appended, Batch } from "./store.ts";

export const migrations: readonly SqliteMigration[] = [
  `CREATE TABLE guards (
     workspace_id TEXT PRIMARY KEY,
     deleted_at INTEGER,
     purged_at INTEGER
   ) STRICT, WITHOUT ROWID;
   CREATE INDEX guards_open_purges ON guards (workspace_id) WHERE deleted_at IS NOT NULL AND purged_at IS NULL;

   CREATE TABLE sandboxes (
     sandbox_id TEXT PRIMARY KEY,
     workspace_id TEXT NOT NULL REFERENCES guards,
     logs_sequence INTEGER NOT NULL DEFAULT 0,
     metrics_sequence INTEGER NOT NULL DEFAULT 0,
     text_bytes INTEGER NOT NULL DEFAULT 0,
     updated_at INTEGER NOT NULL
   ) STRICT, WITHOUT ROWID;
   CREATE INDEX sandboxes_by_workspace ON sandboxes (workspace_id);
   CREATE INDEX sandboxes_by_update ON sandboxes (updated_at);

   CREATE TABLE sources (
     sandbox_id TEXT NOT NULL REFERENCES sandboxes,
     container_id TEXT NOT NULL,
     kind TEXT NOT NULL,
     cursor TEXT NOT NULL,
     final INTEGER NOT NULL,
     PRIMARY KEY (sandbox_id, container_id, kind)
   ) STRICT, WITHOUT ROWID;

   -- Times are microseconds here. The body stands last, so that reading the rest touches none of it.
   CREATE TABLE chunks (
     id INTEGER PRIMARY KEY,
     sandbox_id TEXT NOT NULL REFERENCES sandboxes,
     kind TEXT NOT NULL,
     first_sequence INTEGER NOT NULL,
     last_sequence INTEGER NOT NULL,
     first_us INTEGER NOT NULL,
     last_us INTEGER NOT NULL,
     stdout_rows INTEGER NOT NULL,
     stderr_rows INTEGER NOT NULL,
     text_bytes INTEGER NOT NULL,
     body BLOB NOT NULL
   ) STRICT;
   CREATE UNIQUE INDEX chunks_by_sequence ON chunks (sandbox_id, kind, last_sequence);
   CREATE INDEX chunks_by_time ON chunks (sandbox_id, kind, last_us, first_sequence);
   CREATE INDEX chunks_by_age ON chunks (last_us);`,
  // log_bytes: the text_bytes of all its sandboxes. oldest_us: the first time of its oldest log chunk.
  `ALTER TABLE guards ADD COLUMN log_bytes INTEGER NOT NULL DEFAULT 0;
   UPDATE guards SET log_bytes =
     (SELECT coalesce(sum(text_bytes), 0) FROM sandboxes WHERE sandboxes.workspace_id = guards.workspace_id);
   CREATE INDEX guards_by_log_bytes ON guards (log_bytes) WHERE log_bytes > 0;

   ALTER TABLE sandboxes ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
   ALTER TABLE sandboxes ADD COLUMN oldest_us INTEGER;
   UPDATE sandboxes SET
     ended = NOT EXISTS (SELECT 1 FROM sources WHERE sources.sandbox_id = sandboxes.sandbox_id AND NOT final),
     oldest_us = (SELECT first_us FROM chunks WHERE chunks.sandbox_id = sandboxes.sandbox_id AND kind = 'logs'
       ORDER BY last_sequence LIMIT 1);
   CREATE INDEX sandboxes_ended_with_logs ON sandboxes (workspace_id, updated_at) WHERE ended AND text_bytes > 0;
   CREATE INDEX sandboxes_live_with_logs ON sandboxes (workspace_id, oldest_us) WHERE NOT ended AND text_bytes > 0;

   DROP INDEX chunks_by_time;
   CREATE INDEX chunks_by_window
     ON chunks (sandbox_id, kind, last_us, first_sequence, first_us, stdout_rows, stderr_rows);`,
  auditMigration,
];

/** Chunks removed in one transaction: under 20 ms even when each has a mebibyte of lines. */
const batchChunks = 32;

interface SandboxRow {
  workspace_id: string;
  logs_sequence: number;
  metrics_sequence: number;
  text_bytes: number;
}

interface LastChunkRow {
  id: number;
  first_sequence: number;
  last_sequence: number;
  text_bytes: number;
}

export const transactions = {
  ...purgeTransactions,
  ...auditTransactions,

  appendBatch(tx: Transaction, batch: Batch, { quotas, now }: { quotas: LogQuotas; now: Date }): Appended {
    const { source, chunk } = batch;
    const { sandboxId, workspaceId, containerId, kind } = source;
    const removedLines = { sandbox: 0, workspace: 0 };
    if (!passGuard(tx, workspaceId)) throw new DomainError("WORKSPACE_NOT_FOUND", "The workspace was deleted.");
    const sandbox = requireSandbox(tx, sandboxId, workspaceId, now);
    const stored = tx.db.get<{ cursor: string }>(
      "SELECT cursor FROM sources WHERE sandbox_id = ? AND container_id = ? AND kind = ?",
      sandboxId,
      containerId,
      kind,
    );
    const storedCursor = stored?.cursor ?? "";
    if (storedCursor !== batch.fromCursor) return { accepted: false, storedCursor, removedLines };
    tx.db.run(
      `INSERT INTO sources (sandbox_id, container_id, kind, cursor, final) VALUES (?, ?, ?, ?, ?)
       ON CONFLICT DO UPDATE SET cursor = excluded.cursor, final = excluded.final`,
      sandboxId,
      containerId,
      kind,
      batch.toCursor,
      batch.final,
    );
    tx.db.run(
      `UPDATE sandboxes SET updated_at = :now,
         ended = NOT EXISTS (SELECT 1 FROM sources WHERE sandbox_id = :sandboxId AND NOT final)
       WHERE sandbox_id = :sandboxId`,
      { now, sandboxId },
    );
    if (chunk) {
      const { id, grownBytes } = appendChunk(tx, sandboxId, sandbox, chunk);
      if (kind === "logs") {
        addLogBytes(tx, sandboxId, grownBytes);
        const ofSandbox = overQuota(quotas.sandboxBytes, sandbox.text_bytes + grownBytes);
        removedLines.sandbox = removeOldestLogs(tx, sandboxId, { bytes: ofSandbox, keep: id, most: batchChunks }).lines;
        const ofWorkspace = overQuota(quotas.workspaceBytes, logBytesOf(tx, workspaceId));
        removedLines.workspace = trimWorkspace(tx, workspaceId, { bytes: ofWorkspace, keep: id }).lines;
      }
    }
    return { accepted: true, storedCursor: batch.toCursor, removedLines };
  },

  trimTotal(tx: Transaction, totalBytes: number): { lines: number; more: boolean } {
    const over = totalLogBytes(tx.db) - totalBytes;
    const largest = tx.db.get<{ workspace_id: string }>(
      "SELECT workspace_id FROM guards WHERE log_bytes > 0 ORDER BY log_bytes DESC LIMIT 1",
    );
    if (over <= 0 || !largest) return { lines: 0, more: false };
    const { chunks, bytes, lines } = trimWorkspace(tx, largest.workspace_id, { bytes: over });
    return { lines, more: chunks > 0 && bytes < over };
  },

  sweepExpired(tx: Transaction, before: Date): boolean {
    const chunks = removeExpired(tx, before);
    if (chunks === batchChunks) return true;
    const ended = tx.db.all<{ sandbox_id: string }>(
      `SELECT sandbox_id FROM sandboxes s WHERE updated_at < ?
       AND NOT EXISTS (SELECT 1 FROM chunks WHERE sandbox_id = s.sandbox_id) LIMIT ?`,
      before,
      batchChunks,
    );
    for (const { sandbox_id } of ended) removeSandbox(tx, sandbox_id);
    return ended.length === batchChunks;
  },

  purgeBatch(tx: Transaction, workspaceId: string, limits: PurgeLimits): boolean {
    const sandboxIds = tx.db
      .all<{ sandbox_id: string }>(
        "SELECT sandbox_id FROM sandboxes WHERE workspace_id = ? LIMIT ?",
        workspaceId,
        limits.sandboxes,
      )
      .map(({ sandbox_id }) => sandbox_id);
    const sandboxes = JSON.stringify(sandboxIds);
    const found = tx.db.all<{ id: number; textBytes: number }>(
      `SELECT id, text_bytes AS textBytes FROM chunks WHERE sandbox_id IN (SELECT value FROM json_each(?)) LIMIT ?`,
      sandboxes,
      limits.chunks,
    );
    const batch = takePurgeBatch(found, limits.textBytes);
    const removed = batch.map(({ id }) => id);
    // What their sandboxes have counted stays: these go with the last of their chunks.
    tx.db.run("DELETE FROM chunks WHERE id IN (SELECT value FROM json_each(?))", JSON.stringify(removed));
    const bytes = batch.reduce((sum, { textBytes }) => sum + textBytes, 0);
    tx.db.run("UPDATE guards SET log_bytes = log_bytes - ? WHERE workspace_id = ?", bytes, workspaceId);
    if (removed.length < found.length || removed.length === limits.chunks) return true;
    for (const table of ["sources", "sandboxes"]) {
      tx.db.run(`DELETE FROM ${table} WHERE sandbox_id IN (SELECT value FROM json_each(?))`, sandboxes);
    }
    return sandboxIds.length === limits.sandboxes;
  },
} satisfies Transactions;

function requireSandbox(tx: Transaction, sandboxId: string, workspaceId: string, now: Date): SandboxRow {
  const known = findSandbox(tx, sandboxId);
  if (known && known.workspace_id !== workspaceId) {
    throw new DomainError("CONFLICT", "The sandbox is another workspace's.");
  }
  if (known) return known;
  tx.db.run(
    "INSERT INTO sandboxes (sandbox_id, workspace_id, updated_at) VALUES (?, ?, ?)",
    sandboxId,
    workspaceId,
    now,
  );
  return { workspace_id: workspaceId, logs_sequence: 0, metrics_sequence: 0, text_bytes: 0 };
}

function findSandbox(tx: Transaction, sandboxId: string): SandboxRow | undefined {
  return tx.db.get<SandboxRow>(
    "SELECT workspace_id, logs_sequence, metrics_sequence, text_bytes FROM sandboxes WHERE sandbox_id = ?",
    sandboxId,
  );
}

/** Returns the id of the chunk that has the rows now, and by how much more its sandbox's chunks count for. */
function appendChunk(
  tx: Transaction,
  sandboxId: string,
  sandbox: SandboxRow,
  chunk: Chunk,
): { id: number; grownBytes: number } {
  const { kind } = chunk;
  const before = kind === "logs" ? sandbox.logs_sequence : sandbox.metrics_sequence;
  const last = tx.db.get<LastChunkRow>(
    `SELECT id, first_sequence, last_sequence, text_bytes FROM chunks
     WHERE sandbox_id = ? AND kind = ? ORDER BY last_sequence DESC LIMIT 1`,
    sandboxId,
    kind,
  );
  const lastRows = last ? last.last_sequence - last.first_sequence + 1 : 0;
  const mergeable = last && fitsInto({ rows: lastRows, textBytes: last.text_bytes }, chunk);
  const stored = mergeable && tx.db.get<{ body: Uint8Array }>("SELECT body FROM chunks WHERE id = ?", last.id);
  tx.db.run(`UPDATE sandboxes SET ${kind}_sequence = ? WHERE sandbox_id = ?`, before + chunk.rows, sandboxId);
  if (!stored) return { id: insertChunk(tx, sandboxId, before + 1, chunk), grownBytes: chunk.textBytes };
  const merged = mergeChunks(kind, stored.body, chunk.body);
  tx.db.run("DELETE FROM chunks WHERE id = ?", last.id);
  // It may grow by more than the new rows: an earlier version counted only the text of the old ones.
  const grownBytes = merged.textBytes - last.text_bytes;
  return { id: insertChunk(tx, sandboxId, last.first_sequence, merged), grownBytes };
}

function insertChunk(tx: Transaction, sandboxId: string, firstSequence: number, chunk: Chunk): number {
  const inserted = tx.db.get<{ id: number }>(
    `INSERT INTO chunks (sandbox_id, kind, first_sequence, last_sequence, first_us, last_us, stdout_rows, stderr_rows,
       text_bytes, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id`,
    sandboxId,
    chunk.kind,
    firstSequence,
    firstSequence + chunk.rows - 1,
    chunk.firstUs,
    chunk.lastUs,
    chunk.stdoutRows,
    chunk.stderrRows,
    chunk.textBytes,
    chunk.body,
  );
  if (!inserted) throw new Error("A chunk was inserted without an id.");
  return inserted.id;
}

/** Of all workspaces. */
export function totalLogBytes(db: QueryConnection): number {
  const row = db.get<{ total: number }>("SELECT coalesce(sum(log_bytes), 0) AS total FROM guards WHERE log_bytes > 0");
  return row?.total ?? 0;
}

function logBytesOf(tx: Transaction, workspaceId: string): number {
  const row = tx.db.get<{ log_bytes: number }>("SELECT log_bytes FROM guards WHERE workspace_id = ?", workspaceId);
  return row?.log_bytes ?? 0;
}

/** Counts what was added to or removed from a sandbox's log chunks. */
function addLogBytes(tx: Transaction, sandboxId: string, bytes: number): void {
  tx.db.run(
    `UPDATE sandboxes SET text_bytes = text_bytes + :bytes,
       oldest_us = (SELECT first_us FROM chunks WHERE sandbox_id = :sandboxId AND kind = 'logs' ORDER BY last_sequence LIMIT 1)
     WHERE sandbox_id = :sandboxId`,
    { bytes, sandboxId },
  );
  tx.db.run(
    `UPDATE guards SET log_bytes = log_bytes + ?
     WHERE workspace_id = (SELECT workspace_id FROM sandboxes WHERE sandbox_id = ?)`,
    bytes,
    sandboxId,
  );
}

interface Removed {
  chunks: number;
  lines: number;
  bytes: number;
}

/** Removes a sandbox's oldest log chunks until they come to so many bytes; `most` of them, and not the one to `keep`. */
function removeOldestLogs(
  tx: Transaction,
  sandboxId: string,
  o: { bytes: number; keep?: number | undefined; most: number },
): Removed {
  const removed = { chunks: 0, lines: 0, bytes: 0 };
  if (o.bytes <= 0) return removed;
  const oldest = tx.db.all<{ id: number; lines: number; text_bytes: number }>(
    `SELECT id, last_sequence - first_sequence + 1 AS lines, text_bytes FROM chunks
     WHERE sandbox_id = ? AND kind = 'logs' AND id IS NOT ? ORDER BY last_sequence LIMIT ?`,
    sandboxId,
    o.keep,
    o.most,
  );
  for (const { id, lines, text_bytes } of oldest) {
    if (removed.bytes >= o.bytes) break;
    tx.db.run("DELETE FROM chunks WHERE id = ?", id);
    removed.chunks += 1;
    removed.lines += lines;
    removed.bytes += text_bytes;
  }
  if (removed.chunks > 0) addLogBytes(tx, sandboxId, -removed.bytes);
  return removed;
}

/**
 * Removes log chunks of a workspace until they come to so many bytes, `batchChunks` at most, and not the one to `keep`: first
 * those of the sandboxes that ended first, then the oldest.
 */
function trimWorkspace(tx: Transaction, workspaceId: string, o: { bytes: number; keep?: number }): Removed {
  const removed = { chunks: 0, lines: 0, bytes: 0 };
  const removeNext = (): Removed | undefined => {
    const bytes = o.bytes - removed.bytes;
    // Two of each, since the first may only have the chunk to keep.
    const ended = tx.db.all<{ sandbox_id: string }>(
      `SELECT sandbox_id FROM sandboxes WHERE workspace_id = ? AND ended AND text_bytes > 0
       ORDER BY updated_at LIMIT 2`,
      workspaceId,
    );
    for (const { sandbox_id } of ended) {
      const part = removeOldestLogs(tx, sandbox_id, { bytes, keep: o.keep, most: batchChunks - removed.chunks });
      if (part.chunks > 0) return part;
    }
    const live = tx.db.all<{ sandbox_id: string }>(
      `SELECT sandbox_id FROM sandboxes WHERE workspace_id = ? AND NOT ended AND text_bytes > 0
       ORDER BY oldest_us LIMIT 2`,
      workspaceId,
    );
    for (const { sandbox_id } of live) {
      // One, after which another sandbox's may be the oldest.
      const part = removeOldestLogs(tx, sandbox_id, { bytes, keep: o.keep, most: 1 });
      if (part.chunks > 0) return part;
    }
    return undefined;
  };
  while (removed.bytes < o.bytes && removed.chunks < batchChunks) {
    const part = removeNext();
    if (!part) break;
    removed.chunks += part.chunks;
    removed.lines += part.lines;
    removed.bytes += part.bytes;
  }
  return removed;
}

/** Removes some of the chunks that are older than `before`. Returns how many. */
function removeExpired(tx: Transaction, before: Date): number {
  const chunks = tx.db.all<{ id: number; sandbox_id: string; kind: ChunkKind; text_bytes: number }>(
    "SELECT id, sandbox_id, kind, text_bytes FROM chunks WHERE last_us < ? LIMIT ?",
    before.getTime() * 1000,
    batchChunks,
  );
  const logBytes = new Map<string, number>();
  for (const { id, sandbox_id, kind, text_bytes } of chunks) {
    tx.db.run("DELETE FROM chunks WHERE id = ?", id);
    if (kind === "logs") logBytes.set(sandbox_id, (logBytes.get(sandbox_id) ?? 0) + text_bytes);
  }
  for (const [sandboxId, bytes] of logBytes) addLogBytes(tx, sandboxId, -bytes);
  return chunks.length;
}

function removeSandbox(tx: Transaction, sandboxId: string): void {
  tx.db.run("DELETE FROM sources WHERE sandbox_id = ?", sandboxId);
  tx.db.run("DELETE FROM sandboxes WHERE sandbox_id = ?", sandboxId);
}
