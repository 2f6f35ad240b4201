import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { purgeTransactions as kitPurgeTransactions } from "@sandgate/kit/workspaces/sqlite-guards";
import { decidePurgeBatch, type PurgeLimits, type PurgeState } from "../domain/removals.ts";
import { removeSandboxes } from "./retention.sqlite.transactions.ts";

export const purgeTransactions = {
  ...kitPurgeTransactions,

  purgeBatch(tx: Transaction, workspaceId: string, limits: PurgeLimits): boolean {
    const batch = decidePurgeBatch(readState(tx, workspaceId, limits), limits);
    const removed = batch.chunks.map(({ id }) => id);
    // What their sandboxes have counted stays: these go with the last of their chunks.
    tx.db.run("DELETE FROM chunks WHERE id IN (SELECT value FROM json_each(?))", JSON.stringify(removed));
    tx.db.run("UPDATE guards SET log_bytes = log_bytes - ? WHERE workspace_id = ?", batch.textBytes, workspaceId);
    removeSandboxes(tx, batch.sandboxIds);
    return batch.more;
  },
} satisfies Transactions;

function readState(
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
