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

const replaceKeys: TransactionOf<Keys["replaceAll"]> = (tx, keys, endedAt) => {
  tx.db.run("DELETE FROM keys");
  for (const key of keys) insertKey(tx, key);
  tx.db.run("UPDATE sessions SET ended_at = ? WHERE ended_at IS NULL", endedAt);
};

const removeKeys: TransactionOf<Keys["remove"]> = (tx, ids) => {
  for (const id of ids) tx.db.run("DELETE FROM keys WHERE id = ?", id);
};

export const keyTransactions = { addKey, replaceKeys, removeKeys } satisfies Transactions;
