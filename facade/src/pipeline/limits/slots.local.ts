import type { Slots } from "./slots.ts";

/** Slots that are counted in this process alone. */
export function createLocalSlots(): Slots {
  const used = new Map<string, number>();
  return {
    acquire(limits) {
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
