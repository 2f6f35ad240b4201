/**
 * Caches what `load` returns for a key for at most `maxAgeMs`, counted from when the load began. Concurrent calls for the same
 * key share one load; a failed one is not cached.
 */
export class LoadingCache<V> {
  readonly #entries = new Map<string, { at: number; value: Promise<V> }>();
  readonly #maxAgeMs: number;
  readonly #maxEntries: number;
  readonly #now: () => number;

  constructor(o: { maxAgeMs: number; maxEntries?: number; now?: () => number }) {
    this.#maxAgeMs = o.maxAgeMs;
    this.#maxEntries = o.maxEntries ?? 10_000;
    this.#now = o.now ?? (() => performance.now());
  }

  get(key: string, load: () => Promise<V>): Promise<V> {
    const now = this.#now();
    const known = this.#entries.get(key);
    if (known && now - known.at < this.#maxAgeMs) return known.value;
    const entry = { at: now, value: load() };
    entry.value.catch(() => {
      if (this.#entries.get(key) === entry) this.#entries.delete(key);
    });
    // Inserted again, so that the map is ordered by age.
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    this.#dropOld(now);
    return entry.value;
  }

  /** Drops the keys that match (all by default), also those being loaded. */
  forget(matches: (key: string) => boolean = () => true): void {
    for (const key of this.#entries.keys()) if (matches(key)) this.#entries.delete(key);
  }

  #dropOld(now: number): void {
    for (const [key, { at }] of this.#entries) {
      if (now - at < this.#maxAgeMs && this.#entries.size <= this.#maxEntries) return;
      this.#entries.delete(key);
    }
  }
}
