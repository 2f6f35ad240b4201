import pLimit, { type LimitFunction } from "p-limit";

/**
 * Runs work under a limit for its key and a limit for all keys together. An abort ends the wait in the queue, which then
 * throws the signal's reason; work that has begun runs to its end and keeps its slot until then.
 */
export type FairLimit = <T>(key: string, work: () => Promise<T>, signal?: AbortSignal) => Promise<T>;

/**
 * A concurrency limit that no key can use up: at most `perKey` tasks run at once for a key, and `total` in all (no limit
 * unless given). A task that waits for its key's limit takes no slot of the common one. `p-limit` alone has neither keys nor
 * signals; `p-queue` has signals, but an abort also frees the slot of work that still runs.
 */
export function createFairLimit(o: { perKey: number; total?: number }): FairLimit {
  const all = pLimit(o.total ?? Number.POSITIVE_INFINITY);
  const keys = new Map<string, { limit: LimitFunction; users: number }>();
  return async (key, work, signal) => {
    const own = keys.get(key) ?? { limit: pLimit(o.perKey), users: 0 };
    keys.set(key, own);
    own.users += 1;
    try {
      return await runInTurn(own.limit, () => runInTurn(all, work, signal), signal);
    } finally {
      own.users -= 1;
      if (own.users === 0) keys.delete(key);
    }
  };
}

/** `p-limit` can't remove one waiting task: a task that was aborted returns its slot as soon as it gets it. */
function runInTurn<T>(limit: LimitFunction, work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
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
