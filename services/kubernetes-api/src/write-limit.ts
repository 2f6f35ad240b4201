import { setTimeout as delay } from "node:timers/promises";
import { monotonicMs } from "@sandgate/kit/base/time";

/**
 * Lets so many requests a second through: evenly, and after a pause a second's worth at once. Requests take turns in
 * the order in which they came, so each knows at once how long it waits.
 */
export function createWriteLimit(
  perSecond: number,
  now: () => number = monotonicMs,
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
