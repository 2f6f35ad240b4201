import { addMs } from "@sandgate/kit/base/time";
import type { MongoDatabase } from "@sandgate/kit/storage/mongo";
import { type SlotRequest, slotLeaseMs } from "../domain/slot-leases.ts";
import { collectionsOf, upserted } from "./collections.mongo.ts";
import { removeAt } from "./expiry.mongo.ts";
import type { SlotLeases } from "./slot-leases.ts";

export function createSlotLeases({ db }: MongoDatabase): SlotLeases {
  const { slotLeases } = collectionsOf(db);

  /**
   * One statement decides as `slotsFor` does. In transactions, facades would conflict on the slots that many wait for.
   */
  async function acquire(holder: string, { key, limit, used, wanted }: SlotRequest, now: Date): Promise<number> {
    const isAnothers = { $and: [{ $ne: ["$$this.id", holder] }, { $gt: ["$$this.endsAt", now.getTime()] }] };
    const others = { $filter: { input: { $ifNull: ["$holders", []] }, as: "this", cond: isAnothers } };
    const left = { $subtract: [limit, { $sum: "$holders.held" }] };
    const own = { id: holder, held: "$held", endsAt: now.getTime() + slotLeaseMs };
    const { held } = await upserted(() =>
      slotLeases.findOneAndUpdate(
        { _id: key },
        [
          { $set: { holders: others, removeAt: removeAt("slotLeases", addMs(now, slotLeaseMs)) } },
          { $set: { held: { $max: [used, { $min: [wanted, left] }] } } },
          { $set: { holders: { $concatArrays: ["$holders", { $cond: [{ $gt: ["$held", 0] }, [own], []] }] } } },
        ],
        { upsert: true, returnDocument: "after" },
      ),
    );
    return held;
  }

  return {
    acquire: (holder, requests, now) => Promise.all(requests.map((request) => acquire(holder, request, now))),
  };
}
