import type { MongoDatabase, MongoTransaction } from "@sandgate/kit/storage/mongo";
import type { StoredKey } from "../domain/signing-keys.ts";
import type { IdentityStore } from "./store.ts";

interface KeyDocument extends Omit<StoredKey, "id" | "createdAt"> {
  _id: string;
  createdAt: number;
}

type KeyStore = Pick<IdentityStore, "addKey" | "listKeys" | "replaceKeys" | "removeKeys">;

/** The part of the store that keys of tokens use. */
export function createKeyStore(
  { db, write }: MongoDatabase,
  o: {
    /** Makes this transaction conflict with every other one of that name. */
    conflictAs(tx: MongoTransaction, name: string): Promise<void>;
    endAllSessions(endedAt: Date): Promise<void>;
  },
): KeyStore {
  const keys = db.collection<KeyDocument>("keys");

  return {
    addKey: ({ id, createdAt, ...key }, unlessAfter) =>
      write(async (tx) => {
        const { session } = tx;
        if (await keys.findOne({ createdAt: { $gt: unlessAfter.getTime() }, use: key.use }, { session })) return false;
        await o.conflictAs(tx, `${key.use} key`);
        await keys.insertOne({ _id: id, ...key, createdAt: createdAt.getTime() }, { session });
        return true;
      }),

    async listKeys() {
      const found = await keys.find().sort({ createdAt: -1, _id: -1 }).toArray();
      return found.map(({ _id, createdAt, ...key }) => ({
        id: _id,
        ...key,
        sealed: new Uint8Array(key.sealed),
        createdAt: new Date(createdAt),
      }));
    },

    async replaceKeys(fresh, endedAt) {
      // Not in the transaction, which every refresh meanwhile would make run again. Before it, so that no session that is
      // open gets a token of a new key; after it, for those that began in between.
      await o.endAllSessions(endedAt);
      await write(async ({ session }) => {
        await keys.deleteMany({}, { session, hint: { _id: 1 } });
        await keys.insertMany(
          fresh.map(({ id, createdAt, ...key }) => ({ _id: id, ...key, createdAt: createdAt.getTime() })),
          { session },
        );
      });
      await o.endAllSessions(endedAt);
    },

    async removeKeys(ids) {
      await keys.deleteMany({ _id: { $in: [...ids] } });
    },
  };
}
