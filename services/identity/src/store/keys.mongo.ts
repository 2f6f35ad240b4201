import type { MongoDatabase } from "@sandgate/kit/storage/mongo";
import type { StoredKey } from "../domain/signing-keys.ts";
import { collectionsOf, takeTurn } from "./collections.mongo.ts";
import type { Keys } from "./keys.ts";
import { endAllSessions } from "./sessions.mongo.ts";

const toDocument = ({ id, createdAt, ...key }: StoredKey) => ({ _id: id, ...key, createdAt: createdAt.getTime() });

export function createKeys({ db, write }: MongoDatabase): Keys {
  const collections = collectionsOf(db);
  const { keys } = collections;

  const replace: Keys["replace"] = (fresh) =>
    write(async ({ session }) => {
      await keys.deleteMany({}, { session, hint: { _id: 1 } });
      await keys.insertMany(fresh.map(toDocument), { session });
    });

  return {
    replace,

    add: (key, unlessAfter) =>
      write(async (tx) => {
        const { session } = tx;
        const { use } = key;
        if (await keys.findOne({ createdAt: { $gt: unlessAfter.getTime() }, use }, { session })) return false;
        await takeTurn(collections, tx, `${use} key`);
        await keys.insertOne(toDocument(key), { session });
        return true;
      }),

    async list() {
      const found = await keys.find().sort({ createdAt: -1, _id: -1 }).toArray();
      return found.map(({ _id, createdAt, ...key }) => ({
        id: _id,
        ...key,
        sealed: new Uint8Array(key.sealed),
        createdAt: new Date(createdAt),
      }));
    },

    async replaceAll(fresh, endedAt) {
      // Not in the transaction, which every refresh meanwhile would make run again. Before it, so that no session that
      // is open gets a token of a new key; after it, for those that began in between.
      await endAllSessions(collections, endedAt);
      await replace(fresh);
      await endAllSessions(collections, endedAt);
    },

    async remove(ids) {
      await keys.deleteMany({ _id: { $in: [...ids] } });
    },
  };
}
