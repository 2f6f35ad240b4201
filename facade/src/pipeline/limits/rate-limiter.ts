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
  /** Counts a request of a key. */
  consume(key: string, limit: number): RateLimitStatus | Promise<RateLimitStatus>;
  /**
   * Counts a request for several keys, or for none when it exceeds the limit of one: what is refused for its credential doesn't
   * use up what the user's other credentials may still do. Answers a status for each, in their order.
   */
  consumeAll(limits: readonly RateLimit[]): RateLimitStatus[] | Promise<RateLimitStatus[]>;
  /** Reads the status without counting. */
  peek(key: string, limit: number): RateLimitStatus | Promise<RateLimitStatus>;
}
