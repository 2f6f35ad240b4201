import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import type { StoredKey } from "../domain/signing-keys.ts";
import type { Keys } from "./keys.ts";
import { insert, type TransactionOf } from "./transaction.sqlite.ts";

function insertKey(tx: Transaction, { id, use, publicJwk, sealed, createdAt }: StoredKey): void {
  insert(tx, "keys", { id, use, public_jwk: publicJwk, sealed, created_at: createdAt });
}

const addKey: TransactionOf<Keys["add"]> = (tx, key, unlessAfter) => {
  if (tx.db.get("SELECT 1 FROM keys WHERE use = ? AND created_at > ? LIMIT 1", key.use, unlessAfter)) return false;
  insertKey(tx, key);
  return true;
};

const replaceKeys: TransactionOf<Keys["replace"]> = (tx, keys) => {
  tx.db.run("DELETE FROM keys");
  for (const key of keys) insertKey(tx, key);
};

const replaceKeysWithSessions: TransactionOf<Keys["replaceAll"]> = (tx, keys, endedAt) => {
  replaceKeys(tx, keys);
  // Those that began since the others were ended.
  while (endSessions(tx, endedAt) > 0);
};

/** Ends some sessions, and returns how many. */
function endSessions({ db }: Transaction, endedAt: Date): number {
  return db.run(
    `UPDATE sessions SET ended_at = ? WHERE id IN (
       SELECT id FROM sessions INDEXED BY sessions_live WHERE ended_at IS NULL AND id > '' LIMIT 500)`,
    endedAt,
  );
}

const removeKeys: TransactionOf<Keys["remove"]> = (tx, ids) => {
  for (const id of ids) tx.db.run("DELETE FROM keys WHERE id = ?", id);
};

export const keyTransactions = {
  addKey,
  replaceKeys,
  replaceKeysWithSessions,
  endSessions,
  removeKeys,
} satisfies Transactions;
