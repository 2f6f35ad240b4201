import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { passGuard } from "@sandgate/kit/workspaces/sqlite-guards";
import { type Batch, decideAppend, isFinal, type SandboxRecord, type Source } from "../domain/batches.ts";
import { type Chunk, fitsInto, mergeChunks } from "../domain/chunks.ts";
import { type LogQuotas, overQuota } from "../domain/quotas.ts";
import { limitsOver } from "../domain/removals.ts";
import { addLogBytes, removeOldestLogs, trimWorkspace } from "./retention.sqlite.transactions.ts";
import { readSandbox } from "./sources.sqlite.ts";
import type { Appended } from "./sources.ts";

const noLines = { sandbox: 0, workspace: 0 };

export const sourceTransactions = {
  appendBatch(tx: Transaction, batch: Batch, { quotas, now }: { quotas: LogQuotas; now: Date }): Appended {
    const { source, chunk } = batch;
    const isWorkspaceDeleted = !passGuard(tx, source.workspaceId);
    const before = readSandbox(tx.db, source.sandboxId);
    const { storedCursor, sandbox } = decideAppend({ isWorkspaceDeleted, sandbox: before }, batch);
    if (!sandbox) return { accepted: false, storedCursor, removedLines: noLines };
    saveSandbox(tx, batch, sandbox, now);
    const removedLines = chunk ? storeRows(tx, source, sandbox.sequences[chunk.kind], chunk, quotas) : noLines;
    return { accepted: true, storedCursor, removedLines };
  },
} satisfies Transactions;

/** Stores the rows up to `sequence`, and removes others where they exceed a quota. Returns how many lines. */
function storeRows(
  tx: Transaction,
  { sandboxId, workspaceId }: Source,
  sequence: number,
  chunk: Chunk,
  quotas: LogQuotas,
): Appended["removedLines"] {
  const grownBytes = storeChunk(tx, sandboxId, sequence, chunk);
  if (chunk.kind !== "logs") return noLines;
  const stored = addLogBytes(tx, sandboxId, grownBytes);
  const keep = new Map([[sandboxId, sequence]]);
  const ofSandbox = overQuota(quotas.sandboxBytes, stored.sandboxBytes);
  const removed = removeOldestLogs(tx, sandboxId, limitsOver(ofSandbox, keep));
  const ofWorkspace = overQuota(quotas.workspaceBytes, stored.workspaceBytes - removed.bytes);
  const trimmed = trimWorkspace(tx, workspaceId, limitsOver(ofWorkspace, keep));
  return { sandbox: removed.lines, workspace: trimmed.lines };
}

function saveSandbox(tx: Transaction, { source, toCursor, final }: Batch, sandbox: SandboxRecord, now: Date): void {
  const { sandboxId, containerId, kind } = source;
  const { workspaceId, sequences } = sandbox;
  tx.db.run(
    `INSERT INTO sandboxes (sandbox_id, workspace_id, logs_sequence, metrics_sequence, ended, updated_at)
     VALUES (:sandboxId, :workspaceId, :logs, :metrics, :ended, :now)
     ON CONFLICT DO UPDATE SET logs_sequence = :logs, metrics_sequence = :metrics, ended = :ended, updated_at = :now`,
    { sandboxId, workspaceId, ...sequences, ended: isFinal(sandbox), now },
  );
  tx.db.run(
    `INSERT INTO sources (sandbox_id, container_id, kind, cursor, final) VALUES (?, ?, ?, ?, ?)
     ON CONFLICT DO UPDATE SET cursor = excluded.cursor, final = excluded.final`,
    sandboxId,
    containerId,
    kind,
    toCursor,
    final,
  );
}

/**
 * Stores the rows up to `sequence`, in the newest chunk or one of their own. Returns by how many bytes the chunks grow.
 */
function storeChunk(tx: Transaction, sandboxId: string, sequence: number, chunk: Chunk): number {
  const last = tx.db.get<Omit<Chunk, "kind" | "body"> & { id: number }>(
    `SELECT id, last_sequence - first_sequence + 1 AS rows, first_us AS firstUs, last_us AS lastUs,
       stdout_rows AS stdoutRows, stderr_rows AS stderrRows, text_bytes AS textBytes FROM chunks
     WHERE sandbox_id = ? AND kind = ? ORDER BY last_sequence DESC LIMIT 1`,
    sandboxId,
    chunk.kind,
  );
  const mergeable = last && fitsInto(last, chunk);
  const stored = mergeable && tx.db.get<Pick<Chunk, "body">>("SELECT body FROM chunks WHERE id = ?", last.id);
  const { rows, ...columns } = stored ? mergeChunks({ ...last, ...stored, kind: chunk.kind }, chunk) : chunk;
  if (stored) tx.db.run("DELETE FROM chunks WHERE id = ?", last.id);
  tx.db.run(
    `INSERT INTO chunks (sandbox_id, kind, first_sequence, last_sequence, first_us, last_us, stdout_rows, stderr_rows,
       text_bytes, body)
     VALUES (:sandboxId, :kind, :firstSequence, :sequence, :firstUs, :lastUs, :stdoutRows, :stderrRows, :textBytes, :body)`,
    { sandboxId, sequence, firstSequence: sequence - rows + 1, ...columns },
  );
  return columns.textBytes - (stored ? last.textBytes : 0);
}
