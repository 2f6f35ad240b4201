/** A total for each key, and of all. A key whose total is 0 takes no memory. */
export class Totals {
  readonly #ofKeys = new Map<string, number>();
  #all = 0;

  get all(): number {
    return this.#all;
  }

  of(key: string): number {
    return this.#ofKeys.get(key) ?? 0;
  }

  /** Adds to a key's total, or takes from it, and returns it. */
  add(key: string, change: number): number {
    const total = this.of(key) + change;
    if (total > 0) this.#ofKeys.set(key, total);
    else this.#ofKeys.delete(key);
    this.#all += change;
    return total;
  }
}
