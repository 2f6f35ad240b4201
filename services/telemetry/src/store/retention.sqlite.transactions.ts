import type { QueryConnection, Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import type { ChunkKind, StoredChunk } from "../domain/chunks.ts";
import {
  addRemovals,
  chooseOldest,
  decidePurgeBatch,
  limitsAfter,
  limitsOfStep,
  limitsOver,
  maxRemovedChunks,
  nothingRemoved,
  type PurgeLimits,
  type PurgeState,
  type Removal,
  type RemovalLimits,
} from "../domain/removals.ts";

export const retentionTransactions = {
  sweepExpired(tx: Transaction, before: Date): boolean {
    if (removeExpired(tx, before) === maxRemovedChunks) return true;
    const ended = tx.db.all<{ sandbox_id: string }>(
      `SELECT sandbox_id FROM sandboxes s WHERE updated_at < ?
       AND NOT EXISTS (SELECT 1 FROM chunks WHERE sandbox_id = s.sandbox_id) LIMIT ?`,
      before,
      maxRemovedChunks,
    );
    removeSandboxes(
      tx,
      ended.map(({ sandbox_id }) => sandbox_id),
    );
    return ended.length === maxRemovedChunks;
  },

  trimTotal(tx: Transaction, totalBytes: number): { lines: number; more: boolean } {
    const over = totalLogBytes(tx.db) - totalBytes;
    const largest = tx.db.get<{ workspace_id: string }>(
      "SELECT workspace_id FROM guards WHERE log_bytes > 0 ORDER BY log_bytes DESC LIMIT 1",
    );
    if (over <= 0 || !largest) return { lines: 0, more: false };
    const removed = trimWorkspace(tx, largest.workspace_id, limitsOver(over));
    return { lines: removed.lines, more: removed.chunks > 0 && removed.bytes < over };
  },

  purgeBatch(tx: Transaction, workspaceId: string, limits: PurgeLimits): boolean {
    const batch = decidePurgeBatch(readPurgeState(tx, workspaceId, limits), limits);
    const removed = batch.chunks.map(({ id }) => id);
    // What their sandboxes have counted stays: these go with the last of their chunks.
    tx.db.run("DELETE FROM chunks WHERE id IN (SELECT value FROM json_each(?))", JSON.stringify(removed));
    tx.db.run("UPDATE guards SET log_bytes = log_bytes - ? WHERE workspace_id = ?", batch.textBytes, workspaceId);
    removeSandboxes(tx, batch.sandboxIds);
    return batch.more;
  },
} satisfies Transactions;

/** Of all workspaces. */
export function totalLogBytes(db: QueryConnection): number {
  return db.get<{ bytes: number }>("SELECT bytes FROM log_total")?.bytes ?? 0;
}

/** Counts what was added to or removed from a sandbox's log chunks. Returns what it and its workspace have. */
export function addLogBytes(
  tx: Transaction,
  sandboxId: string,
  bytes: number,
): { sandboxBytes: number; workspaceBytes: number } {
  const sandbox = tx.db.get<{ workspaceId: string; textBytes: number }>(
    `UPDATE sandboxes SET text_bytes = text_bytes + :bytes, oldest_us = (SELECT first_us FROM chunks
       WHERE sandbox_id = :sandboxId AND kind = 'logs' ORDER BY last_sequence LIMIT 1)
     WHERE sandbox_id = :sandboxId RETURNING workspace_id AS workspaceId, text_bytes AS textBytes`,
    { bytes, sandboxId },
  );
  const guard = tx.db.get<{ logBytes: number }>(
    "UPDATE guards SET log_bytes = log_bytes + ? WHERE workspace_id = ? RETURNING log_bytes AS logBytes",
    bytes,
    sandbox?.workspaceId,
  );
  return { sandboxBytes: sandbox?.textBytes ?? 0, workspaceBytes: guard?.logBytes ?? 0 };
}

/** Removes a sandbox's oldest log chunks. */
export function removeOldestLogs(tx: Transaction, sandboxId: string, limits: RemovalLimits): Removal {
  if (limits.bytes <= 0) return nothingRemoved;
  const oldest = tx.db.all<Pick<StoredChunk, "firstSequence" | "lastSequence" | "textBytes"> & { id: number }>(
    `SELECT id, first_sequence AS firstSequence, last_sequence AS lastSequence, text_bytes AS textBytes FROM chunks
     WHERE sandbox_id = ? AND kind = 'logs' ORDER BY last_sequence LIMIT ?`,
    sandboxId,
    limits.chunks,
  );
  const { chosen, removal } = chooseOldest(sandboxId, oldest, limits);
  for (const { id } of chosen) tx.db.run("DELETE FROM chunks WHERE id = ?", id);
  if (removal.chunks > 0) addLogBytes(tx, sandboxId, -removal.bytes);
  return removal;
}

/** Removes log chunks of a workspace: first those of the sandboxes that ended first, then the oldest. */
export function trimWorkspace(tx: Transaction, workspaceId: string, limits: RemovalLimits): Removal {
  let removed = nothingRemoved;
  for (let left = limitsAfter(limits, removed); left; left = limitsAfter(limits, removed)) {
    const next = removeNext(tx, workspaceId, left);
    if (next.chunks === 0) break;
    removed = addRemovals(removed, next);
  }
  return removed;
}

function removeNext(tx: Transaction, workspaceId: string, limits: RemovalLimits): Removal {
  // Two of each, since the first may only have the chunk to keep.
  const candidates = tx.db.all<{ sandboxId: string; ended: number }>(
    `SELECT * FROM (SELECT sandbox_id AS sandboxId, ended FROM sandboxes
       WHERE workspace_id = :workspaceId AND ended AND text_bytes > 0 ORDER BY updated_at LIMIT 2)
     UNION ALL SELECT * FROM (SELECT sandbox_id, ended FROM sandboxes
       WHERE workspace_id = :workspaceId AND NOT ended AND text_bytes > 0 ORDER BY oldest_us LIMIT 2)`,
    { workspaceId },
  );
  for (const { sandboxId, ended } of candidates) {
    const removed = removeOldestLogs(tx, sandboxId, ended ? limits : limitsOfStep(limits));
    if (removed.chunks > 0) return removed;
  }
  return nothingRemoved;
}

/** Removes some of the chunks that are older than `before`. Returns how many. */
function removeExpired(tx: Transaction, before: Date): number {
  const chunks = tx.db.all<{ id: number; sandbox_id: string; kind: ChunkKind; text_bytes: number }>(
    "SELECT id, sandbox_id, kind, text_bytes FROM chunks WHERE last_us < ? LIMIT ?",
    before.getTime() * 1000,
    maxRemovedChunks,
  );
  for (const { id } of chunks) tx.db.run("DELETE FROM chunks WHERE id = ?", id);
  const logs = chunks.filter(({ kind }) => kind === "logs");
  for (const [sandboxId, removed] of Map.groupBy(logs, ({ sandbox_id }) => sandbox_id)) {
    addLogBytes(tx, sandboxId, -removed.reduce((sum, { text_bytes }) => sum + text_bytes, 0));
  }
  return chunks.length;
}

/** Removes the records of sandboxes that have no chunks. */
function removeSandboxes(tx: Transaction, sandboxIds: readonly string[]): void {
  for (const table of ["sources", "sandboxes"]) {
    tx.db.run(`DELETE FROM ${table} WHERE sandbox_id IN (SELECT value FROM json_each(?))`, JSON.stringify(sandboxIds));
  }
}

function readPurgeState(
  tx: Transaction,
  workspaceId: string,
  limits: PurgeLimits,
): PurgeState<{ id: number; textBytes: number }> {
  const sandboxIds = tx.db
    .all<{ sandbox_id: string }>(
      "SELECT sandbox_id FROM sandboxes WHERE workspace_id = ? LIMIT ?",
      workspaceId,
      limits.sandboxes,
    )
    .map(({ sandbox_id }) => sandbox_id);
  const chunks = tx.db.all<{ id: number; textBytes: number }>(
    "SELECT id, text_bytes AS textBytes FROM chunks WHERE sandbox_id IN (SELECT value FROM json_each(?)) LIMIT ?",
    JSON.stringify(sandboxIds),
    limits.chunks,
  );
  return { sandboxIds, chunks };
}
