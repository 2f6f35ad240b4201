import type { MongoDatabase } from "@sandgate/kit/storage/mongo";
import { type Budget, grantOf } from "../domain/rate-counters.ts";
import { collectionsOf, upserted } from "./collections.mongo.ts";
import { removeAfter } from "./expiry.mongo.ts";
import type { RateCounters } from "./rate-counters.ts";

// Counters of an account under attack, or of a busy user, are written many times at once. In transactions these would
// conflict and run again and again, so each is one statement that decides as `grantOf` does.
export function createRateCounters({ db }: MongoDatabase): RateCounters {
  const { windows } = collectionsOf(db);

  async function consume({ key, limit, windowMs }: Budget, wanted: number, now: Date) {
    const isOver = { $lte: [{ $ifNull: ["$endsAt", 0] }, now.getTime()] };
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
        { upsert: true, returnDocument: "after" },
      ),
    );
    return { used: window.used, granted: window.granted, endsAt: new Date(window.endsAt) };
  }

  return {
    async consume(budget, wanted, now) {
      const { used, granted, endsAt } = await consume(budget, wanted, now);
      return { granted, remaining: grantOf(used, budget.limit, budget.limit), endsAt };
    },

    async consumeEach(budgets, now) {
      const consumed: { _id: Uint8Array; endsAt: number }[] = [];
      for (const [index, budget] of budgets.entries()) {
        const { granted, endsAt } = await consume(budget, 1, now);
        if (granted === 0) {
          for (const window of consumed) await windows.updateOne(window, { $inc: { used: -1 } });
          return { index, endsAt };
        }
        consumed.push({ _id: budget.key, endsAt: endsAt.getTime() });
      }
      return undefined;
    },
  };
}
