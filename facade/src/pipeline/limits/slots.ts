/** What is limited, and to how many that are open at once. */
export interface SlotLimit {
  key: string;
  limit: number;
}

/** Counts what is open at once. */
export interface Slots {
  /** Takes a slot of each, or none when one has none left: returns that one then. */
  take(limits: readonly SlotLimit[]): SlotLimit | undefined | Promise<SlotLimit | undefined>;
  /** Gives back what `take` took. */
  release(limits: readonly SlotLimit[]): void;
  /** Gives back everything at once; nothing is called afterwards. */
  close(): Promise<void>;
}

/** Counts in this process alone. */
export function createLocalSlots(): Slots {
  const used = new Map<string, number>();
  return {
    take(limits) {
      const exceeded = limits.find(({ key, limit }) => (used.get(key) ?? 0) >= limit);
      if (exceeded) return exceeded;
      for (const { key } of limits) used.set(key, (used.get(key) ?? 0) + 1);
      return undefined;
    },
    release(limits) {
      for (const { key } of limits) {
        const left = (used.get(key) ?? 0) - 1;
        if (left > 0) used.set(key, left);
        else used.delete(key);
      }
    },
    async close() {},
  };
}
