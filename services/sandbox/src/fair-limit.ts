import pLimit, { type LimitFunction } from "p-limit";

/** Runs work under a limit of its own for each key, and one for all together. */
export type FairLimit = <T>(key: string, work: () => Promise<T>) => Promise<T>;

/**
 * A limit that no key can use up: `perKey` pieces of work run at once for a key, `together` in all (no limit unless given).
 * What waits for its key's turn takes no place of the others.
 */
export function createFairLimit(o: { perKey: number; together?: number }): FairLimit {
  const all = pLimit(o.together ?? Number.POSITIVE_INFINITY);
  const keys = new Map<string, LimitFunction>();
  return async (key, work) => {
    const own = keys.get(key) ?? pLimit(o.perKey);
    keys.set(key, own);
    try {
      return await own(() => all(work));
    } finally {
      if (own.activeCount + own.pendingCount === 0 && keys.get(key) === own) {
        keys.delete(key);
      }
    }
  };
}
