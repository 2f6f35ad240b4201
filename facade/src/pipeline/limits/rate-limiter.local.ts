import { minuteMs, monotonicMs } from "@sandgate/kit/base/time";
import type { RateLimiter, RateLimitStatus } from "./rate-limiter.ts";

/** The oldest are dropped beyond this, so that a flood of addresses can't fill the memory. */
const maxKeys = 200_000;

/**
 * A rate limiter that counts in this process alone. A key's window, a minute by default, begins with its first request.
 */
export function createLocalRateLimiter(o: { windowMs?: number; now?: () => number } = {}): RateLimiter {
  const { windowMs = minuteMs, now = monotonicMs } = o;
  // All windows have the same length, so the map is ordered by when they end.
  const windows = new Map<string, { used: number; endsAt: number }>();

  function dropEnded(at: number): void {
    for (const [key, window] of windows) {
      if (window.endsAt > at && windows.size <= maxKeys) return;
      windows.delete(key);
    }
  }

  function count(key: string, limit: number, requests: number): RateLimitStatus {
    const at = now();
    let window = windows.get(key);
    if (!window || window.endsAt <= at) {
      window = { used: 0, endsAt: at + windowMs };
      if (requests > 0) {
        dropEnded(at);
        windows.delete(key);
        windows.set(key, window);
      }
    }
    const allowed = window.used + requests <= limit;
    if (allowed) window.used += requests;
    return {
      limit,
      remaining: limit - window.used,
      resetSeconds: Math.max(1, Math.ceil((window.endsAt - at) / 1000)),
      allowed,
    };
  }

  return {
    consume: (key, limit) => count(key, limit, 1),
    consumeAll(limits) {
      const before = limits.map(({ key, limit }) => count(key, limit, 0));
      if (before.some(({ remaining }) => remaining <= 0)) {
        return before.map((status) => ({ ...status, allowed: status.remaining > 0 }));
      }
      return limits.map(({ key, limit }) => count(key, limit, 1));
    },
    peek: (key, limit) => count(key, limit, 0),
  };
}
