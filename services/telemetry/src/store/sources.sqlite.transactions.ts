import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { passGuard } from "@sandgate/kit/workspaces/sqlite-guards";
import { type AppendState, type Batch, decideAppend, type Source } from "../domain/batches.ts";
import { type Chunk, fitsInto, mergeChunks, rowsIn, type StoredChunk } from "../domain/chunks.ts";
import { type LogQuotas, overQuota } from "../domain/quotas.ts";
import { maxRemovedChunks } from "../domain/removals.ts";
import { addLogBytes, removeOldestLogs, trimWorkspace } from "./retention.sqlite.transactions.ts";
import type { Appended } from "./sources.ts";

interface SandboxRow {
  workspaceId: string;
  logs: number;
  metrics: number;
  textBytes: number;
}

export const sourceTransactions = {
  appendBatch(tx: Transaction, batch: Batch, { quotas, now }: { quotas: LogQuotas; now: Date }): Appended {
    const { source, chunk } = batch;
    const { sandboxId, workspaceId, kind } = source;
    const removedLines = { sandbox: 0, workspace: 0 };
    const state = readState(tx, source);
    const { accepted, storedCursor } = decideAppend(state, batch);
    if (!accepted) return { accepted, storedCursor, removedLines };
    if (!state.sandbox) insertSandbox(tx, source, now);
    const sequence = (state.sandbox?.[kind] ?? 0) + (chunk?.rows ?? 0);
    moveCursor(tx, batch, { sequence, now });
    if (chunk) {
      const grownBytes = storeChunk(tx, sandboxId, sequence, chunk);
      if (kind === "logs") {
        addLogBytes(tx, sandboxId, grownBytes);
        const limits = { chunks: maxRemovedChunks, keep: { sandboxId, sequence } };
        const ofSandbox = overQuota(quotas.sandboxBytes, (state.sandbox?.textBytes ?? 0) + grownBytes);
        removedLines.sandbox = removeOldestLogs(tx, sandboxId, { ...limits, bytes: ofSandbox }).lines;
        const ofWorkspace = overQuota(quotas.workspaceBytes, logBytesOf(tx, workspaceId));
        removedLines.workspace = trimWorkspace(tx, workspaceId, { ...limits, bytes: ofWorkspace }).lines;
      }
    }
    return { accepted, storedCursor: batch.toCursor, removedLines };
  },
} satisfies Transactions;

function readState(
  tx: Transaction,
  { sandboxId, workspaceId, containerId, kind }: Source,
): AppendState & { sandbox: SandboxRow | undefined } {
  const isWorkspaceDeleted = !passGuard(tx, workspaceId);
  const sandbox = tx.db.get<SandboxRow>(
    `SELECT workspace_id AS workspaceId, logs_sequence AS logs, metrics_sequence AS metrics, text_bytes AS textBytes
     FROM sandboxes WHERE sandbox_id = ?`,
    sandboxId,
  );
  const stored = tx.db.get<{ cursor: string }>(
    "SELECT cursor FROM sources WHERE sandbox_id = ? AND container_id = ? AND kind = ?",
    sandboxId,
    containerId,
    kind,
  );
  return { isWorkspaceDeleted, sandbox, cursor: stored?.cursor };
}

function insertSandbox(tx: Transaction, { sandboxId, workspaceId }: Source, now: Date): void {
  tx.db.run(
    "INSERT INTO sandboxes (sandbox_id, workspace_id, updated_at) VALUES (?, ?, ?)",
    sandboxId,
    workspaceId,
    now,
  );
}

/** Moves the source's cursor to the batch's end, and its sandbox's sequence to that of the last row. */
function moveCursor(tx: Transaction, { source, toCursor, final }: Batch, o: { sequence: number; now: Date }): void {
  const { sandboxId, containerId, kind } = source;
  tx.db.run(
    `INSERT INTO sources (sandbox_id, container_id, kind, cursor, final) VALUES (?, ?, ?, ?, ?)
     ON CONFLICT DO UPDATE SET cursor = excluded.cursor, final = excluded.final`,
    sandboxId,
    containerId,
    kind,
    toCursor,
    final,
  );
  tx.db.run(
    `UPDATE sandboxes SET updated_at = :now, ${kind}_sequence = :sequence,
       ended = NOT EXISTS (SELECT 1 FROM sources WHERE sandbox_id = :sandboxId AND NOT final)
     WHERE sandbox_id = :sandboxId`,
    { now: o.now, sequence: o.sequence, sandboxId },
  );
}

/**
 * Stores the rows up to `sequence`, in the newest chunk or one of their own. Returns by how many bytes the chunks grow.
 */
function storeChunk(tx: Transaction, sandboxId: string, sequence: number, chunk: Chunk): number {
  const { kind } = chunk;
  const last = tx.db.get<Pick<StoredChunk, "firstSequence" | "lastSequence" | "textBytes"> & { id: number }>(
    `SELECT id, first_sequence AS firstSequence, last_sequence AS lastSequence, text_bytes AS textBytes FROM chunks
     WHERE sandbox_id = ? AND kind = ? ORDER BY last_sequence DESC LIMIT 1`,
    sandboxId,
    kind,
  );
  const mergeable = last && fitsInto({ rows: rowsIn(last), textBytes: last.textBytes }, chunk);
  const stored = mergeable && tx.db.get<{ body: Uint8Array }>("SELECT body FROM chunks WHERE id = ?", last.id);
  if (!stored) {
    insertChunk(tx, sandboxId, sequence, chunk);
    return chunk.textBytes;
  }
  const merged = mergeChunks(kind, stored.body, chunk.body);
  tx.db.run("DELETE FROM chunks WHERE id = ?", last.id);
  insertChunk(tx, sandboxId, sequence, merged);
  return merged.textBytes - last.textBytes;
}

function insertChunk(tx: Transaction, sandboxId: string, lastSequence: number, chunk: Chunk): void {
  tx.db.run(
    `INSERT INTO chunks (sandbox_id, kind, first_sequence, last_sequence, first_us, last_us, stdout_rows, stderr_rows,
       text_bytes, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    sandboxId,
    chunk.kind,
    lastSequence - chunk.rows + 1,
    lastSequence,
    chunk.firstUs,
    chunk.lastUs,
    chunk.stdoutRows,
    chunk.stderrRows,
    chunk.textBytes,
    chunk.body,
  );
}

function logBytesOf(tx: Transaction, workspaceId: string): number {
  const row = tx.db.get<{ log_bytes: number }>("SELECT log_bytes FROM guards WHERE workspace_id = ?", workspaceId);
  return row?.log_bytes ?? 0;
}
