import { createHash } from "node:crypto";
import type { Logger } from "@sandgate/kit/base/logging";
import { monotonicMs } from "@sandgate/kit/base/time";
import type { RateLimit, RateLimiter, RateLimitStatus } from "./rate-limiter.ts";

/** Requests of the shared count that this facade consumed in advance. */
interface Batch {
  left: number;
  /** Left for all facades when it was consumed. */
  remaining: number;
  endsAt: number;
}

export interface Consumed {
  granted: number;
  /** Left in the window for all facades. */
  remaining: number;
  /** Milliseconds until the window ends. */
  resetMs: number;
}

/**
 * A batch is the limit divided by this, and at least one request: small enough that unused batches elsewhere hardly
 * matter.
 */
const batchesPerLimit = 30;
const maxKeys = 200_000;
/** How long to count locally after the shared count could not be reached, so that no request waits for it. */
const retryAfterMs = 2_000;

/**
 * A rate limiter whose counts are shared by all facades: each consumes small batches of one count in advance, so the
 * sum never exceeds the limit. While that count can't be reached, `fallback` counts in this process alone.
 */
export function createSharedRateLimiter(o: {
  /** Consumes up to `wanted` requests of the key's window. */
  consume(key: Uint8Array, limit: number, wanted: number): Promise<Consumed>;
  fallback: RateLimiter;
  logger: Logger;
  now?: () => number;
}): RateLimiter {
  const now = o.now ?? monotonicMs;
  const batches = new Map<string, Batch>();
  const consuming = new Map<string, Promise<Batch>>();
  let localUntil = 0;

  function currentBatch(key: string): Batch | undefined {
    const batch = batches.get(key);
    return batch && batch.endsAt > now() ? batch : undefined;
  }

  async function consumeBatch(key: string, limit: number): Promise<Batch> {
    const hash = createHash("sha256").update(key).digest();
    const { granted, remaining, resetMs } = await o.consume(
      hash,
      limit,
      Math.max(1, Math.floor(limit / batchesPerLimit)),
    );
    const batch = { left: granted, remaining, endsAt: now() + resetMs };
    batches.delete(key);
    batches.set(key, batch);
    for (const [oldest, { endsAt }] of batches) {
      if (endsAt > now() && batches.size <= maxKeys) break;
      batches.delete(oldest);
    }
    return batch;
  }

  function statusOf(batch: Batch, limit: number, allowed: boolean): RateLimitStatus {
    const resetSeconds = Math.max(1, Math.ceil((batch.endsAt - now()) / 1000));
    return { limit, remaining: batch.remaining + batch.left, resetSeconds, allowed };
  }

  /** The key's batch, or another if nothing is left in it and something is left for all facades. */
  function batchFor({ key, limit }: RateLimit): Batch | Promise<Batch> {
    const batch = currentBatch(key);
    if (batch && (batch.left > 0 || batch.remaining === 0)) return batch;
    const own = consuming.get(key) ?? consumeBatch(key, limit).finally(() => consuming.delete(key));
    consuming.set(key, own);
    return own;
  }

  async function consumeAll(limits: readonly RateLimit[]): Promise<RateLimitStatus[]> {
    if (now() < localUntil) return o.fallback.consumeAll(limits);
    try {
      for (;;) {
        // All keys that need a batch get it at once, so that several wait no longer than one.
        const batches = await Promise.all(
          limits.map(async (limited) => ({ batch: await batchFor(limited), limit: limited.limit })),
        );
        const isUsedUp = (batch: Batch) => batch.left === 0 && batch.remaining === 0;
        if (batches.some(({ batch }) => isUsedUp(batch))) {
          return batches.map(({ batch, limit }) => statusOf(batch, limit, !isUsedUp(batch)));
        }
        // Others may have used up a batch while another was on its way.
        if (batches.some(({ batch }) => batch.left === 0)) continue;
        for (const { batch } of batches) batch.left -= 1;
        return batches.map(({ batch, limit }) => statusOf(batch, limit, true));
      }
    } catch (error) {
      localUntil = now() + retryAfterMs;
      o.logger.warn({ err: error }, "the shared rate limit can't be reached, so this facade counts alone");
      return o.fallback.consumeAll(limits);
    }
  }

  return {
    async consume(key, limit) {
      const [status] = await consumeAll([{ key, limit }]);
      if (!status) throw new Error("a limit has no status");
      return status;
    },
    consumeAll,
    peek(key, limit) {
      const batch = currentBatch(key);
      return batch ? statusOf(batch, limit, true) : { limit, remaining: limit, resetSeconds: 60, allowed: true };
    },
  };
}
