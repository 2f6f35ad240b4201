/**
 * Remembers what `load` answered for a key for at most `maxAgeMs`, counted from when it was asked. Requests for the same
 * key share one load; a failed one is not remembered.
 */
export class FreshCache<V> {
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
    // Set anew, so that the map's order is the order of age.
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    this.#dropOld(now);
    return entry.value;
  }

  /** Forgets the keys that fit, also those being loaded. */
  forget(fits: (key: string) => boolean = () => true): void {
    for (const key of this.#entries.keys()) if (fits(key)) this.#entries.delete(key);
  }

  #dropOld(now: number): void {
    for (const [key, { at }] of this.#entries) {
      if (now - at < this.#maxAgeMs && this.#entries.size <= this.#maxEntries) return;
      this.#entries.delete(key);
    }
  }
}
