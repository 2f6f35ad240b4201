import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import type { StoredKey } from "../domain/signing-keys.ts";

function insertKey(tx: Transaction, { id, use, publicJwk, sealed, createdAt }: StoredKey): void {
  tx.db.run(
    "INSERT INTO keys (id, use, public_jwk, sealed, created_at) VALUES (?, ?, ?, ?, ?)",
    id,
    use,
    publicJwk,
    sealed,
    createdAt,
  );
}

function addKey(tx: Transaction, key: StoredKey, unlessAfter: Date): boolean {
  if (tx.db.get("SELECT 1 FROM keys WHERE use = ? AND created_at > ? LIMIT 1", key.use, unlessAfter)) return false;
  insertKey(tx, key);
  return true;
}

function replaceKeys(tx: Transaction, keys: readonly StoredKey[], endedAt: Date): void {
  tx.db.run("DELETE FROM keys");
  for (const key of keys) insertKey(tx, key);
  tx.db.run("UPDATE sessions SET ended_at = ? WHERE ended_at IS NULL", endedAt);
}

function removeKeys(tx: Transaction, ids: readonly string[]): void {
  for (const id of ids) tx.db.run("DELETE FROM keys WHERE id = ?", id);
}

export const keyTransactions = { addKey, replaceKeys, removeKeys } satisfies Transactions;
