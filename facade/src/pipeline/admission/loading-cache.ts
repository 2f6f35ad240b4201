import { LRUCache } from "lru-cache";

/**
 * Caches what `load` returns for a key for less than `maxAgeMs`, counted from when the load began. Concurrent calls for
 * the same key share one load; a failed one is not cached.
 */
export class LoadingCache<V> {
  readonly #values: LRUCache<string, Promise<V>>;

  constructor(o: { maxAgeMs: number; maxEntries?: number; now?: () => number }) {
    this.#values = new LRUCache({
      max: o.maxEntries ?? 10_000,
      // lru-cache still returns what is exactly as old as `ttl`.
      ttl: o.maxAgeMs - 1,
      ttlResolution: 0,
      ...(o.now && { perf: { now: o.now } }),
    });
  }

  get(key: string, load: () => Promise<V>): Promise<V> {
    const known = this.#values.get(key);
    if (known) return known;
    const value = load();
    this.#values.set(key, value);
    value.catch(() => {
      if (this.#values.peek(key) === value) this.#values.delete(key);
    });
    return value;
  }

  /** Drops the keys that match (all by default), also those being loaded. */
  forget(matches: (key: string) => boolean = () => true): void {
    for (const key of [...this.#values.rkeys()]) if (matches(key)) this.#values.delete(key);
  }
}
