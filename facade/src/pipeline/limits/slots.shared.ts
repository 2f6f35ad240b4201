import { createHash } from "node:crypto";
import { messageOf } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import type { SlotLimit, Slots } from "./slots.ts";

/** What this facade says it holds of a key. */
export interface SlotHold {
  key: Uint8Array;
  limit: number;
  used: number;
  wanted: number;
}

export interface Held {
  /** For each key that was asked about, in its order. */
  held: readonly number[];
  /** Milliseconds for which that is so. */
  leaseMs: number;
}

/** A key's slots in this facade. */
interface Place {
  hash: Uint8Array;
  limit: number;
  used: number;
  /** How many of the shared count's are this facade's until `heldUntil`. */
  held: number;
  heldUntil: number;
  /** The shared count has no more. */
  isFull: boolean;
  /** Settles once what is being asked about it has been answered. */
  asking?: Promise<void> | undefined;
}

/**
 * Slots beyond those in use that a facade holds of a key are the limit divided by this, and at least one: so few that what is
 * unused elsewhere hardly matters.
 */
const sparesPerLimit = 50;
/** How often a facade says what it holds: a third of the time for which it then does. */
const renewalMs = 10_000;
/** The most that the shared count takes at once. */
const maxHolds = 500;
/** How long to count alone after the shared count could not be reached, so that no request waits for it. */
const aloneMs = 2_000;

/**
 * Slots that all facades share. Each holds some in advance, and says every 10 s what it holds; what it doesn't say any more,
 * because it died, is free 30 s after it last did. While the shared count can't be reached, each facade counts alone up to the limit.
 */
export function createSharedSlots(o: {
  /** Tells the shared count what this facade has and wants of each key, and returns how many it holds. */
  hold(holds: readonly SlotHold[]): Promise<Held>;
  logger: Logger;
}): Slots {
  const places = new Map<string, Place>();
  let aloneUntil = 0;
  const now = () => performance.now();
  const sparesOf = (limit: number) => Math.max(1, Math.floor(limit / sparesPerLimit));

  function placeOf({ key, limit }: SlotLimit): Place {
    const known = places.get(key);
    if (known) return known;
    const hash = createHash("sha256").update(key).digest();
    const place = { hash, limit, used: 0, held: 0, heldUntil: 0, isFull: false };
    places.set(key, place);
    return place;
  }

  const hasFree = (place: Place) => place.used < place.held && now() < place.heldUntil;

  /** Asks the shared count about these places, none of which is being asked about. */
  function ask(asked: readonly [Place, wanted: number][]): Promise<void> {
    const sentAt = now();
    // What is given back is no longer used from here on, although the answer is still to come.
    for (const [place, wanted] of asked) place.held = Math.min(place.held, wanted);
    const answered = o
      .hold(asked.map(([{ hash, limit, used }, wanted]) => ({ key: hash, limit, used, wanted })))
      .then(({ held, leaseMs }) => {
        for (const [index, [place, wanted]] of asked.entries()) {
          place.held = held[index] ?? 0;
          place.heldUntil = sentAt + leaseMs;
          place.isFull = place.held < wanted;
        }
      })
      .finally(() => {
        for (const [place] of asked) {
          place.asking = undefined;
          giveBack(place);
        }
      });
    for (const [place] of asked) place.asking = answered;
    return answered;
  }

  /** Gives back at once what others could use; the last few wait for the next renewal. */
  function giveBack(place: Place): void {
    const kept = place.used + sparesOf(place.limit);
    if (place.held - kept > sparesOf(place.limit) && !place.asking) void ask([[place, kept]]).catch(countAlone);
  }

  function countAlone(error: unknown): void {
    if (now() >= aloneUntil) {
      o.logger.warn(
        { err: messageOf(error) },
        "the shared count of waits can't be reached, so this facade counts alone",
      );
    }
    aloneUntil = now() + aloneMs;
  }

  async function renew(): Promise<void> {
    const due: [Place, number][] = [];
    for (const [key, place] of places) {
      if (place.asking) continue;
      if (place.used === 0 && place.held === 0) places.delete(key);
      else due.push([place, place.used === 0 ? 0 : place.used + sparesOf(place.limit)]);
    }
    for (let first = 0; first < due.length; first += maxHolds) {
      // What was asked about since then has been renewed by that.
      const idle = due.slice(first, first + maxHolds).filter(([place]) => !place.asking);
      if (idle.length > 0) await ask(idle).catch(countAlone);
    }
  }

  const timer = setInterval(() => void renew(), renewalMs);
  timer.unref();

  return {
    async take(limits) {
      for (;;) {
        const wanted = limits.map((limit) => ({ limit, place: placeOf(limit) }));
        const lacking = wanted.filter(({ place }) => !hasFree(place));
        if (lacking.length === 0 || now() < aloneUntil) {
          const exceeded = wanted.find(({ limit, place }) => place.used >= limit.limit);
          if (exceeded) return exceeded.limit;
          for (const { place } of wanted) place.used += 1;
          return undefined;
        }
        const pending = lacking.find(({ place }) => place.asking)?.place.asking;
        const asked = pending ? lacking.filter(({ place }) => place.asking === pending) : lacking;
        try {
          await (pending ?? ask(asked.map(({ place }) => [place, place.used + 1 + sparesOf(place.limit)])));
        } catch (error) {
          countAlone(error);
          continue;
        }
        const exceeded = asked.find(({ place }) => place.isFull && !hasFree(place));
        if (exceeded) return exceeded.limit;
      }
    },

    release(limits) {
      for (const limit of limits) {
        const place = placeOf(limit);
        place.used -= 1;
        giveBack(place);
      }
    },

    async close() {
      clearInterval(timer);
      await Promise.allSettled([...places.values()].map(({ asking }) => asking));
      const held = [...places.values()].filter(({ held }) => held > 0);
      for (let first = 0; first < held.length; first += maxHolds) {
        const given = held.slice(first, first + maxHolds);
        await ask(given.map((place) => [{ ...place, used: 0 }, 0])).catch((error: unknown) => {
          o.logger.warn({ err: error }, "slots of waits were not given back; they are free in 30 s");
        });
      }
    },
  };
}
