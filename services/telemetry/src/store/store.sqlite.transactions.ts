import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { passGuard, purgeTransactions } from "@sandgate/kit/workspaces/sqlite-guards";
import { type Chunk, type ChunkKind, fitsInto, mergeChunks, type PurgeLimits, takePurgeBatch } from "./chunks.ts";
import type { Batch } from "./store.ts";

export const migrations: readonly string[] = [
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

  appendBatch(
    tx: Transaction,
    batch: Batch,
    o: { logQuotaBytes: number; now: Date },
  ): { accepted: boolean; storedCursor: string } {
    const { sandboxId, workspaceId, containerId, kind } = batch.source;
    if (!passGuard(tx, workspaceId)) throw new DomainError("WORKSPACE_NOT_FOUND", "The workspace was deleted.");
    const sandbox = requireSandbox(tx, sandboxId, workspaceId, o.now);
    const source = tx.db.get<{ cursor: string }>(
      "SELECT cursor FROM sources WHERE sandbox_id = ? AND container_id = ? AND kind = ?",
      sandboxId,
      containerId,
      kind,
    );
    const storedCursor = source?.cursor ?? "";
    if (storedCursor !== batch.fromCursor) return { accepted: false, storedCursor };
    tx.db.run(
      `INSERT INTO sources (sandbox_id, container_id, kind, cursor, final) VALUES (?, ?, ?, ?, ?)
       ON CONFLICT DO UPDATE SET cursor = excluded.cursor, final = excluded.final`,
      sandboxId,
      containerId,
      kind,
      batch.toCursor,
      batch.final,
    );
    if (batch.chunk) appendChunk(tx, sandboxId, sandbox, batch.chunk);
    tx.db.run("UPDATE sandboxes SET updated_at = ? WHERE sandbox_id = ?", o.now, sandboxId);
    if (kind === "logs" && o.logQuotaBytes > 0) enforceQuota(tx, sandboxId, o.logQuotaBytes);
    return { accepted: true, storedCursor: batch.toCursor };
  },

  sweepExpired(tx: Transaction, before: Date): boolean {
    const chunks = removeChunks(tx, "last_us < ?", before.getTime() * 1000);
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
    const removed = takePurgeBatch(found, limits.textBytes).map(({ id }) => id);
    // What their sandboxes have counted stays: these go with the last of their chunks.
    tx.db.run("DELETE FROM chunks WHERE id IN (SELECT value FROM json_each(?))", JSON.stringify(removed));
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

function appendChunk(tx: Transaction, sandboxId: string, sandbox: SandboxRow, chunk: Chunk): void {
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
  let grownBytes = chunk.textBytes;
  if (stored) {
    const merged = mergeChunks(kind, stored.body, chunk.body);
    // It may grow by more than the new rows: an earlier version counted only the text of the old ones.
    grownBytes = merged.textBytes - last.text_bytes;
    tx.db.run("DELETE FROM chunks WHERE id = ?", last.id);
    insertChunk(tx, sandboxId, last.first_sequence, merged);
  } else {
    insertChunk(tx, sandboxId, before + 1, chunk);
  }
  tx.db.run(
    `UPDATE sandboxes SET ${kind}_sequence = ?, text_bytes = text_bytes + ? WHERE sandbox_id = ?`,
    before + chunk.rows,
    grownBytes,
    sandboxId,
  );
}

function insertChunk(tx: Transaction, sandboxId: string, firstSequence: number, chunk: Chunk): void {
  tx.db.run(
    `INSERT INTO chunks (sandbox_id, kind, first_sequence, last_sequence, first_us, last_us, stdout_rows, stderr_rows,
       text_bytes, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
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
}

/** The newest chunk always stays. A quota that was lowered is enforced batch by batch. */
function enforceQuota(tx: Transaction, sandboxId: string, quotaBytes: number): void {
  let over = (findSandbox(tx, sandboxId)?.text_bytes ?? 0) - quotaBytes;
  if (over <= 0) return;
  const kind: ChunkKind = "logs";
  const oldest = tx.db.all<{ id: number; text_bytes: number }>(
    "SELECT id, text_bytes FROM chunks WHERE sandbox_id = ? AND kind = ? ORDER BY last_sequence LIMIT ?",
    sandboxId,
    kind,
    batchChunks,
  );
  const newest = tx.db.get<{ id: number }>(
    "SELECT id FROM chunks WHERE sandbox_id = ? AND kind = ? ORDER BY last_sequence DESC LIMIT 1",
    sandboxId,
    kind,
  );
  for (const chunk of oldest) {
    if (over <= 0 || chunk.id === newest?.id) return;
    removeChunks(tx, "id = ?", chunk.id);
    over -= chunk.text_bytes;
  }
}

/** Removes some of the chunks that `where` selects, and subtracts their size from their sandboxes'. Returns how many. */
function removeChunks(tx: Transaction, where: string, value: string | number): number {
  const chunks = tx.db.all<{ id: number; sandbox_id: string; text_bytes: number }>(
    `SELECT id, sandbox_id, text_bytes FROM chunks WHERE ${where} LIMIT ?`,
    value,
    batchChunks,
  );
  for (const { id, sandbox_id, text_bytes } of chunks) {
    tx.db.run("DELETE FROM chunks WHERE id = ?", id);
    tx.db.run("UPDATE sandboxes SET text_bytes = text_bytes - ? WHERE sandbox_id = ?", text_bytes, sandbox_id);
  }
  return chunks.length;
}

function removeSandbox(tx: Transaction, sandboxId: string): void {
  tx.db.run("DELETE FROM sources WHERE sandbox_id = ?", sandboxId);
  tx.db.run("DELETE FROM sandboxes WHERE sandbox_id = ?", sandboxId);
}
