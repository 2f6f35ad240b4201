import { addMs } from "@sandgate/kit/base/time";
import { type Db, isDuplicateKey } from "@sandgate/kit/storage/mongo";
import { type Expiring, removeAfter, removeAt } from "./removal.mongo.ts";
import { type IdentityStore, requestWindowMs, type SlotHold, slotLeaseMs } from "./store.ts";

interface RequestWindowDocument extends Expiring {
  _id: Uint8Array;
  used: number;
  /** Of the last draw. */
  granted: number;
  endsAt: number;
}

interface HeldSlotsDocument extends Expiring {
  /** The key. */
  _id: Uint8Array;
  holders: { id: string; held: number; endsAt: number }[];
  /** By who wrote last. */
  held: number;
}

type SharedLimitStore = Pick<IdentityStore, "drawRequests" | "holdSlots">;

/** The part of the store that counts requests, and what is open, for all facades. */
export function createSharedLimitStore(db: Db): SharedLimitStore {
  const requestWindows = db.collection<RequestWindowDocument>("request_windows");
  const heldSlots = db.collection<HeldSlotsDocument>("held_slots");

  async function holdSlots(holder: string, { key, limit, used, wanted }: SlotHold, now: Date): Promise<number> {
    const isAnothers = { $and: [{ $ne: ["$$this.id", holder] }, { $gt: ["$$this.endsAt", now.getTime()] }] };
    const others = { $filter: { input: { $ifNull: ["$holders", []] }, as: "this", cond: isAnothers } };
    const left = { $subtract: [limit, { $sum: "$holders.held" }] };
    const own = { id: holder, held: "$held", endsAt: now.getTime() + slotLeaseMs };
    const hold = () =>
      heldSlots.findOneAndUpdate(
        { _id: key },
        [
          { $set: { holders: others, removeAt: removeAt("heldSlots", addMs(now, slotLeaseMs)) } },
          { $set: { held: { $max: [used, { $min: [wanted, left] }] } } },
          { $set: { holders: { $concatArrays: ["$holders", { $cond: [{ $gt: ["$held", 0] }, [own], []] }] } } },
        ],
        { upsert: true, returnDocument: "after" },
      );
    // Of two first holds of a key at once, the later one finds the document when it is tried again.
    const found = await hold().catch((error: unknown) => (isDuplicateKey(error) ? hold() : Promise.reject(error)));
    if (!found) throw new Error("an upsert returned no document");
    return found.held;
  }

  return {
    async drawRequests({ key, limit, wanted }, now) {
      const isOver = { $lte: [{ $ifNull: ["$endsAt", 0] }, now.getTime()] };
      const used = { $cond: [isOver, 0, "$used"] };
      const granted = { $max: [0, { $min: [wanted, { $subtract: [limit, used] }] }] };
      const draw = () =>
        requestWindows.findOneAndUpdate(
          { _id: key },
          [
            {
              $set: {
                granted,
                used: { $add: [used, granted] },
                endsAt: { $cond: [isOver, now.getTime() + requestWindowMs, "$endsAt"] },
              },
            },
            { $set: { removeAt: removeAfter("requestWindows", "$endsAt") } },
          ],
          { upsert: true, returnDocument: "after" },
        );
      // Of two first draws of a key at once, the later one finds the document when it is tried again.
      const drawn = await draw().catch((error: unknown) => (isDuplicateKey(error) ? draw() : Promise.reject(error)));
      if (!drawn) throw new Error("an upsert returned no document");
      return { granted: drawn.granted, remaining: Math.max(0, limit - drawn.used), endsAt: new Date(drawn.endsAt) };
    },

    holdSlots: (holder, holds, now) => Promise.all(holds.map((hold) => holdSlots(holder, hold, now))),
  };
}
