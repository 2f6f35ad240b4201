import type { Transaction } from "../storage/transaction.ts";
import { passGuard, purgedIndex, purgeTransactions } from "./sqlite-guards.ts";

/** What the tests of purges write to SQLite. */
export const migrations = [
  "CREATE TABLE guards (workspace_id TEXT PRIMARY KEY, deleted_at INTEGER, purged_at INTEGER) STRICT, WITHOUT ROWID;",
  "CREATE INDEX guards_open_purges ON guards (workspace_id) WHERE deleted_at IS NOT NULL AND purged_at IS NULL;",
  purgedIndex,
];

export const transactions = {
  ...purgeTransactions,
  hold: (tx: Transaction, workspaceId: string) => passGuard(tx, workspaceId),
};
