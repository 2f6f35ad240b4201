/** What is limited, and to how many requests in a window. */
export interface RateLimit {
  key: string;
  limit: number;
}

/** How much of a key's limit is left. */
export interface RateLimitStatus {
  limit: number;
  remaining: number;
  /** Whole seconds, at least 1, until the window ends. */
  resetSeconds: number;
  /** False: this request exceeds the limit. */
  allowed: boolean;
}

/**
 * Counts requests for each key in windows of one length. @fastify/rate-limit doesn't fit: it counts one key for each
 * request, and its shared count costs a round trip to Redis each time. Here a request counts for several keys, and
 * replicas share a count in batches.
 */
export interface RateLimiter {
  /** Counts a request of a key. */
  consume(key: string, limit: number): RateLimitStatus | Promise<RateLimitStatus>;
  /**
   * Counts a request for several keys, or for none when it exceeds the limit of one. So a request that is refused for
   * its credential doesn't use up the limit of its user's other credentials. Returns a status for each key, in their
   * order.
   */
  consumeAll(limits: readonly RateLimit[]): RateLimitStatus[] | Promise<RateLimitStatus[]>;
  /** Reads the status without counting. */
  peek(key: string, limit: number): RateLimitStatus | Promise<RateLimitStatus>;
}
