import { addMs } from "@sandgate/kit/base/time";
import { createCollections, type Db, isDuplicateKey, type MongoMigration } from "@sandgate/kit/storage/mongo";
import type { Budget } from "../domain/rate-counters.ts";
import { keptMs } from "../domain/retention.ts";
import type { LimitStore } from "./limits.ts";

/** Times are epoch milliseconds, but for the one at which MongoDB removes the document. */
interface WindowDocument {
  _id: Uint8Array;
  used: number;
  endsAt: number;
  /** Of the last attempt to take one. */
  granted: number;
  removeAt: Date;
}

export interface KnownNetworkDocument {
  _id: Uint8Array;
  userId: string;
  seenAt: number;
  removeAt: Date;
}

export const limitMigration: MongoMigration = {
  name: "identity: networks that users signed in from",
  expands: true,
  run: (db) =>
    createCollections(db, {
      known_networks: [
        { name: "by_user", key: { userId: 1 } },
        { name: "removal", key: { removeAt: 1 }, expireAfterSeconds: 0 },
      ],
    }),
};

export function createLimitStore(db: Db): LimitStore {
  const windows = db.collection<WindowDocument>("request_windows");
  const knownNetworks = db.collection<KnownNetworkDocument>("known_networks");

  async function take({ key, limit, windowMs }: Budget, now: Date): Promise<WindowDocument> {
    const isOver = { $lte: [{ $ifNull: ["$endsAt", 0] }, now.getTime()] };
    const update = () =>
      windows.findOneAndUpdate(
        { _id: key },
        [
          {
            $set: {
              used: { $cond: [isOver, 0, "$used"] },
              endsAt: { $cond: [isOver, now.getTime() + windowMs, "$endsAt"] },
            },
          },
          { $set: { granted: { $cond: [{ $lt: ["$used", limit] }, 1, 0] } } },
          {
            $set: {
              used: { $add: ["$used", "$granted"] },
              removeAt: { $toDate: { $add: ["$endsAt", keptMs.requestWindows] } },
            },
          },
        ],
        { upsert: true, returnDocument: "after" },
      );
    // Of two first ones of a key at once, the later finds the document when it is tried again.
    const taken = await update().catch((error: unknown) => (isDuplicateKey(error) ? update() : Promise.reject(error)));
    if (!taken) throw new Error("an upsert returned no document");
    return taken;
  }

  return {
    // Not in a transaction: those of an account under attack would conflict, and run again and again.
    async spend(budgets, now) {
      const taken: WindowDocument[] = [];
      for (const [index, budget] of budgets.entries()) {
        const window = await take(budget, now);
        if (window.granted === 0) {
          for (const { _id, endsAt } of taken) await windows.updateOne({ _id, endsAt }, { $inc: { used: -1 } });
          return { index, endsAt: new Date(window.endsAt) };
        }
        taken.push(window);
      }
      return undefined;
    },

    async isKnownNetwork(userId, network, now) {
      const since = addMs(now, -keptMs.knownNetworks).getTime();
      return (await knownNetworks.findOne({ _id: network, userId, seenAt: { $gt: since } })) !== null;
    },

    async noteNetwork(userId, network, now) {
      const seen = { userId, seenAt: now.getTime(), removeAt: addMs(now, keptMs.knownNetworks) };
      await knownNetworks.updateOne({ _id: network }, { $set: seen }, { upsert: true });
    },
  };
}
