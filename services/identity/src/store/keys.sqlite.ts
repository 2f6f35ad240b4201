import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import type { StoredKey } from "../domain/signing-keys.ts";
import type { keyTransactions } from "./keys.sqlite.transactions.ts";
import type { Keys } from "./keys.ts";

type KeyRow = { id: string; use: StoredKey["use"]; publicJwk: string; sealed: Uint8Array; created_at: number };

export function createKeys({ read, write }: SqliteDatabase<typeof keyTransactions>): Keys {
  return {
    add: write.addKey,
    remove: write.removeKeys,
    replace: write.replaceKeys,

    async replaceAll(keys, endedAt) {
      // Other writes get their turns meanwhile: there may be very many sessions.
      while ((await write.endSessions(endedAt)) > 0);
      await write.replaceKeysWithSessions(keys, endedAt);
    },

    async list() {
      return read
        .all<KeyRow>(
          "SELECT id, use, public_jwk AS publicJwk, sealed, created_at FROM keys ORDER BY created_at DESC, id DESC",
        )
        .map(({ created_at, ...key }) => ({ ...key, createdAt: new Date(created_at) }));
    },
  };
}
