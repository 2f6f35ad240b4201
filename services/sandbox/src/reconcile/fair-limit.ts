import pLimit, { type LimitFunction } from "p-limit";

/**
 * Runs work under a limit of its own for each key, and one for all together. A wait for the turn ends with the signal,
 * whose reason it then throws; work that has begun is left to end by itself.
 */
export type FairLimit = <T>(key: string, work: () => Promise<T>, signal?: AbortSignal) => Promise<T>;

/**
 * A limit that no key can use up: `perKey` pieces of work run at once for a key, `together` in all (no limit unless given).
 * What waits for its key's turn takes no place of the others.
 */
export function createFairLimit(o: { perKey: number; together?: number }): FairLimit {
  const all = pLimit(o.together ?? Number.POSITIVE_INFINITY);
  const keys = new Map<string, { limit: LimitFunction; users: number }>();
  return async (key, work, signal) => {
    const own = keys.get(key) ?? { limit: pLimit(o.perKey), users: 0 };
    keys.set(key, own);
    own.users += 1;
    try {
      return await takeTurn(own.limit, () => takeTurn(all, work, signal), signal);
    } finally {
      own.users -= 1;
      if (own.users === 0) keys.delete(key);
    }
  };
}

/** The limit can't forget what waits: what has left gives its turn back as soon as it gets it. */
function takeTurn<T>(limit: LimitFunction, work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const leave = () => reject(signal?.reason);
    const begin = () => {
      signal?.throwIfAborted();
      signal?.removeEventListener("abort", leave);
      return work();
    };
    signal?.addEventListener("abort", leave, { once: true });
    limit(begin).then(resolve, reject);
  });
}
