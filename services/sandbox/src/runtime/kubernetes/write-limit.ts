import { setTimeout as delay } from "node:timers/promises";

/**
 * Lets through so many a second, evenly but for a second's worth at once after a pause. Whoever asks gets a turn in the
 * order asked, so it is known at once how long it takes.
 */
export function createWriteLimit(
  perSecond: number,
  now: () => number = () => performance.now(),
): (signal?: AbortSignal) => Promise<void> {
  const everyMs = 1000 / perSecond;
  let nextMs = Number.NEGATIVE_INFINITY;
  return async (signal) => {
    const atMs = Math.max(nextMs, now() - 1000 + everyMs);
    nextMs = atMs + everyMs;
    const waitMs = atMs - now();
    if (waitMs > 0) await delay(waitMs, undefined, { ...(signal && { signal }) });
  };
}
