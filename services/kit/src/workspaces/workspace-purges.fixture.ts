import { purgeTransactions } from "./sqlite-guards.ts";

/** What the tests of purges write to SQLite. */
export const migrations = [
  "CREATE TABLE guards (workspace_id TEXT PRIMARY KEY, deleted_at INTEGER, purged_at INTEGER) STRICT, WITHOUT ROWID;",
];

export const transactions = { ...purgeTransactions };
