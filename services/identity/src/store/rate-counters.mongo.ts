import type { MongoDatabase, MongoTransaction } from "@sandgate/kit/storage/mongo";
import { type Budget, grantOf } from "../domain/rate-counters.ts";
import { type Collections, collectionsOf, upserted } from "./collections.mongo.ts";
import { removeAfter } from "./expiry.mongo.ts";
import type { RateCounters } from "./rate-counters.ts";

// Counters of an account under attack, or of a busy user, are written many times at once. In transactions these would
// conflict and run again and again, so each is one statement that decides as `grantOf` and `isWindowOver` do.

/** Consumes up to `wanted` of the budget's window; in a transaction where those that use its key take turns anyway. */
export async function consume(
  { windows }: Collections,
  { key, limit, windowMs }: Budget,
  wanted: number,
  now: Date,
  tx?: MongoTransaction,
): Promise<{ used: number; granted: number; endsAt: Date }> {
  const end = { $ifNull: ["$endsAt", 0] };
  const isOver = { $or: [{ $lte: [end, now.getTime()] }, { $gt: [end, now.getTime() + 2 * windowMs] }] };
  const used = { $cond: [isOver, 0, "$used"] };
  const granted = { $max: [0, { $min: [wanted, { $subtract: [limit, used] }] }] };
  const endsAt = { $cond: [isOver, now.getTime() + windowMs, "$endsAt"] };
  const window = await upserted(() =>
    windows.findOneAndUpdate(
      { _id: key },
      [
        { $set: { granted, used: { $add: [used, granted] }, endsAt } },
        { $set: { removeAt: removeAfter("requestWindows", "$endsAt") } },
      ],
      { upsert: true, returnDocument: "after", ...(tx && { session: tx.session }) },
    ),
  );
  return { used: window.used, granted: window.granted, endsAt: new Date(window.endsAt) };
}

export function createRateCounters({ db }: MongoDatabase): RateCounters {
  const collections = collectionsOf(db);
  const { windows } = collections;

  async function giveBack({ key }: Pick<Budget, "key">, endsAt: Date): Promise<void> {
    await windows.updateOne({ _id: key, endsAt: endsAt.getTime(), used: { $gt: 0 } }, { $inc: { used: -1 } });
  }

  return {
    giveBack,

    async consume(budget, wanted, now) {
      const { used, granted, endsAt } = await consume(collections, budget, wanted, now);
      return { granted, remaining: grantOf(used, budget.limit, budget.limit), endsAt };
    },

    async consumeEach(budgets, now) {
      const consumed: (Budget & { endsAt: Date })[] = [];
      for (const [index, budget] of budgets.entries()) {
        const { granted, endsAt } = await consume(collections, budget, 1, now);
        if (granted === 0) {
          for (const each of consumed) await giveBack(each, each.endsAt);
          return { index, endsAt };
        }
        consumed.push({ ...budget, endsAt });
      }
      return undefined;
    },
  };
}
