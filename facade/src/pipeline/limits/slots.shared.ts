import { createHash } from "node:crypto";
import { messageOf } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import { monotonicMs } from "@sandgate/kit/base/time";
import type { SlotLimit, Slots } from "./slots.ts";

/** The slots of a key that this facade uses, and how many it wants to lease. */
export interface SlotRequest {
  key: Uint8Array;
  limit: number;
  used: number;
  wanted: number;
}

export interface SlotLeases {
  /** How many are leased of each requested key, in the order of the requests. */
  leased: readonly number[];
  /** How long the leases last, in milliseconds. */
  leaseMs: number;
}

/** A key's slots in this facade. */
interface KeySlots {
  hash: Uint8Array;
  limit: number;
  used: number;
  /** How many this facade leases from the shared count until `leasedUntil`. */
  leased: number;
  leasedUntil: number;
  /** The shared count has no more slots. */
  isFull: boolean;
  /** The request for a lease that is under way. */
  asking?: Promise<void> | undefined;
}

/**
 * Slots beyond those in use that a facade leases of a key are the limit divided by this, and at least one: so few that
 * what is unused elsewhere hardly matters.
 */
const sparesPerLimit = 50;
/** How often a facade renews its leases: a third of the time that they last. */
const renewalMs = 10_000;
/** The most keys that the shared count takes in one call. */
const maxRequests = 500;
/** How long to count alone after the shared count could not be reached, so that no request waits for it. */
const aloneMs = 2_000;

/**
 * Slots that all facades share. Each facade leases some in advance, and renews its leases every 10 s; those of one that
 * died end 30 s after it last did. While the shared count can't be reached, each facade counts alone up to the limit.
 */
export function createSharedSlots(o: {
  /** Leases slots from the shared count. A lease replaces the one before it of the same key. */
  lease(requests: readonly SlotRequest[]): Promise<SlotLeases>;
  logger: Logger;
}): Slots {
  const slotsByKey = new Map<string, KeySlots>();
  let aloneUntil = 0;
  const sparesOf = (limit: number) => Math.max(1, Math.floor(limit / sparesPerLimit));

  function slotsOf({ key, limit }: SlotLimit): KeySlots {
    const known = slotsByKey.get(key);
    if (known) return known;
    const hash = createHash("sha256").update(key).digest();
    const slots = { hash, limit, used: 0, leased: 0, leasedUntil: 0, isFull: false };
    slotsByKey.set(key, slots);
    return slots;
  }

  const hasFree = (slots: KeySlots) => slots.used < slots.leased && monotonicMs() < slots.leasedUntil;

  /** Asks for leases of these slots, none of which is being asked for. */
  function ask(asked: readonly [KeySlots, wanted: number][]): Promise<void> {
    const sentAt = monotonicMs();
    // Slots that are given back are not used any more, although the answer is still to come.
    for (const [slots, wanted] of asked) slots.leased = Math.min(slots.leased, wanted);
    const answered = o
      .lease(asked.map(([{ hash, limit, used }, wanted]) => ({ key: hash, limit, used, wanted })))
      .then(({ leased, leaseMs }) => {
        for (const [index, [slots, wanted]] of asked.entries()) {
          slots.leased = leased[index] ?? 0;
          slots.leasedUntil = sentAt + leaseMs;
          slots.isFull = slots.leased < wanted;
        }
      })
      .finally(() => {
        for (const [slots] of asked) {
          slots.asking = undefined;
          giveBack(slots);
        }
      });
    for (const [slots] of asked) slots.asking = answered;
    return answered;
  }

  /** Gives back what others could use. The last few wait for the next renewal. */
  function giveBack(slots: KeySlots): void {
    const kept = slots.used + sparesOf(slots.limit);
    if (slots.leased - kept > sparesOf(slots.limit) && !slots.asking) void ask([[slots, kept]]).catch(countAlone);
  }

  function countAlone(error: unknown): void {
    if (monotonicMs() >= aloneUntil) {
      o.logger.warn(
        { err: messageOf(error) },
        "the shared count of waits can't be reached, so this facade counts alone",
      );
    }
    aloneUntil = monotonicMs() + aloneMs;
  }

  async function renew(): Promise<void> {
    const due: [KeySlots, number][] = [];
    for (const [key, slots] of slotsByKey) {
      if (slots.asking) continue;
      if (slots.used === 0 && slots.leased === 0) slotsByKey.delete(key);
      else due.push([slots, slots.used === 0 ? 0 : slots.used + sparesOf(slots.limit)]);
    }
    for (let first = 0; first < due.length; first += maxRequests) {
      // A key that was asked for since then has been renewed already.
      const idle = due.slice(first, first + maxRequests).filter(([slots]) => !slots.asking);
      if (idle.length > 0) await ask(idle).catch(countAlone);
    }
  }

  const timer = setInterval(() => void renew(), renewalMs);
  timer.unref();

  return {
    async acquire(limits) {
      for (;;) {
        const wanted = limits.map((limit) => ({ limit, slots: slotsOf(limit) }));
        const lacking = wanted.filter(({ slots }) => !hasFree(slots));
        if (lacking.length === 0 || monotonicMs() < aloneUntil) {
          const exceeded = wanted.find(({ limit, slots }) => slots.used >= limit.limit);
          if (exceeded) return exceeded.limit;
          for (const { slots } of wanted) slots.used += 1;
          return undefined;
        }
        const pending = lacking.find(({ slots }) => slots.asking)?.slots.asking;
        const asked = pending ? lacking.filter(({ slots }) => slots.asking === pending) : lacking;
        try {
          await (pending ?? ask(asked.map(({ slots }) => [slots, slots.used + 1 + sparesOf(slots.limit)])));
        } catch (error) {
          countAlone(error);
          continue;
        }
        const exceeded = asked.find(({ slots }) => slots.isFull && !hasFree(slots));
        if (exceeded) return exceeded.limit;
      }
    },

    release(limits) {
      for (const limit of limits) {
        const slots = slotsOf(limit);
        slots.used -= 1;
        giveBack(slots);
      }
    },

    async close() {
      clearInterval(timer);
      await Promise.allSettled([...slotsByKey.values()].map(({ asking }) => asking));
      const leasing = [...slotsByKey.values()].filter(({ leased }) => leased > 0);
      for (let first = 0; first < leasing.length; first += maxRequests) {
        const given = leasing.slice(first, first + maxRequests);
        await ask(given.map((slots) => [{ ...slots, used: 0 }, 0])).catch((error: unknown) => {
          o.logger.warn({ err: error }, "slots of waits were not given back; they are free in 30 s");
        });
      }
    },
  };
}
