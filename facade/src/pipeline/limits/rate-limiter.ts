/** What is limited, and to how many requests a minute. */
export interface RateLimit {
  key: string;
  limit: number;
}

/** Where a key stands with its limit. */
export interface RateLimitStatus {
  limit: number;
  remaining: number;
  /** Whole seconds, at least 1, until the window ends. */
  resetSeconds: number;
  /** False: this request exceeds the limit. */
  allowed: boolean;
}

/**
 * Counts requests for each key in windows of a minute. Not @fastify/rate-limit: it counts one key for each request, and its
 * shared count takes a round trip to Redis for every one; here a request can count for its address and its account, and the
 * replicas share a count in batches.
 */
export interface RateLimiter {
  /** Counts a request. */
  take(key: string, limit: number): RateLimitStatus | Promise<RateLimitStatus>;
  /**
   * Counts a request for several keys, or for none when it exceeds the limit of one: what is refused for its credential doesn't
   * use up what the user's other credentials may still do. Answers a status for each, in their order.
   */
  takeAll(limits: readonly RateLimit[]): RateLimitStatus[] | Promise<RateLimitStatus[]>;
  /** Reads the status without counting. */
  peek(key: string, limit: number): RateLimitStatus | Promise<RateLimitStatus>;
}

const windowMs = 60_000;
/** The oldest are dropped beyond this, so that a flood of addresses can't fill the memory. */
const maxKeys = 200_000;

/** A limiter that counts in this process alone. A key's minute begins with its first request. */
export function createLocalRateLimiter(now: () => number = () => performance.now()): RateLimiter {
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
    take: (key, limit) => count(key, limit, 1),
    takeAll(limits) {
      const before = limits.map(({ key, limit }) => count(key, limit, 0));
      if (before.some(({ remaining }) => remaining <= 0)) {
        return before.map((status) => ({ ...status, allowed: status.remaining > 0 }));
      }
      return limits.map(({ key, limit }) => count(key, limit, 1));
    },
    peek: (key, limit) => count(key, limit, 0),
  };
}
