import { createHash } from "node:crypto";
import type { Logger } from "@sandgate/kit/base/logging";
import type { RateLimiter, Standing } from "./rate-limit.ts";

/** What is left of a lot of requests that this facade drew. */
interface Lot {
  left: number;
  /** Left for all facades when it was drawn. */
  remaining: number;
  endsAt: number;
}

export interface Drawn {
  granted: number;
  /** Left in the window for all facades. */
  remaining: number;
  /** Milliseconds until the window ends. */
  resetMs: number;
}

/** A lot is this part of a limit, and at least one request: so small that lots left over elsewhere hardly matter. */
const lotsPerLimit = 30;
const maxKeys = 200_000;
/** A count that could not be reached is asked again after this time; meanwhile no request waits for it. */
const awayMs = 2_000;

/**
 * A limiter whose counts are shared by all facades: each draws small lots from one count, so the sum never exceeds the
 * limit. While that count can't be reached, `fallback` counts in this process alone.
 */
export function createSharedRateLimiter(o: {
  /** Draws up to `wanted` requests of the key's window. */
  draw(key: Uint8Array, limit: number, wanted: number): Promise<Drawn>;
  fallback: RateLimiter;
  logger: Logger;
  now?: () => number;
}): RateLimiter {
  const now = o.now ?? (() => performance.now());
  const lots = new Map<string, Lot>();
  const drawing = new Map<string, Promise<Lot>>();
  let awayUntil = 0;

  function currentLot(key: string): Lot | undefined {
    const lot = lots.get(key);
    return lot && lot.endsAt > now() ? lot : undefined;
  }

  async function draw(key: string, limit: number): Promise<Lot> {
    const hash = createHash("sha256").update(key).digest();
    const { granted, remaining, resetMs } = await o.draw(hash, limit, Math.max(1, Math.floor(limit / lotsPerLimit)));
    const lot = { left: granted, remaining, endsAt: now() + resetMs };
    lots.delete(key);
    lots.set(key, lot);
    for (const [oldest, { endsAt }] of lots) {
      if (endsAt > now() && lots.size <= maxKeys) break;
      lots.delete(oldest);
    }
    return lot;
  }

  function standingOf(lot: Lot, limit: number, allowed: boolean): Standing {
    const resetSeconds = Math.max(1, Math.ceil((lot.endsAt - now()) / 1000));
    return { limit, remaining: lot.remaining + lot.left, resetSeconds, allowed };
  }

  return {
    async take(key, limit) {
      if (now() < awayUntil) return o.fallback.take(key, limit);
      try {
        for (;;) {
          const lot = currentLot(key);
          if (lot && lot.left > 0) {
            lot.left -= 1;
            return standingOf(lot, limit, true);
          }
          // Nothing is left for anybody until the window ends.
          if (lot && lot.remaining === 0) return standingOf(lot, limit, false);
          const own = drawing.get(key) ?? draw(key, limit).finally(() => drawing.delete(key));
          drawing.set(key, own);
          const drawn = await own;
          if (drawn.left === 0 && drawn.remaining === 0) return standingOf(drawn, limit, false);
        }
      } catch (error) {
        awayUntil = now() + awayMs;
        o.logger.warn({ err: error }, "the shared count of requests can't be reached, so this facade counts alone");
        return o.fallback.take(key, limit);
      }
    },
    peek(key, limit) {
      const lot = currentLot(key);
      return lot ? standingOf(lot, limit, true) : { limit, remaining: limit, resetSeconds: 60, allowed: true };
    },
  };
}
