/**
 * Runs work under a limit for its key and a limit for all keys together. If the signal aborts while the work waits for
 * a slot, the wait ends and throws the signal's reason. Work that has begun keeps its slot until it ends.
 */
export type FairLimit = <T>(key: string, work: () => Promise<T>, signal?: AbortSignal) => Promise<T>;

/**
 * Creates a concurrency limit that no key can use up. At most `total` tasks run at once (unlimited unless given), and
 * at most `perKey` of one key, even when the others are idle. A free slot goes to the waiting key with the fewest
 * slots, so a key that took many while nobody else waited gives them up as its tasks end. Neither `p-limit` nor
 * `p-queue` has keys, and with `p-queue` an abort also frees the slot of work that is still running.
 */
export function createFairLimit({
  perKey,
  total = Number.POSITIVE_INFINITY,
}: {
  perKey: number;
  total?: number;
}): FairLimit {
  let runningInAll = 0;
  const running = new Map<string, number>();
  /** Starts of the waiting tasks, the oldest first. The key that got a slot last comes last. */
  const waiting = new Map<string, Set<() => void>>();

  function findNextKey(): string | undefined {
    let next: string | undefined;
    let fewest = perKey;
    for (const key of waiting.keys()) {
      const count = running.get(key) ?? 0;
      if (count < fewest) [next, fewest] = [key, count];
    }
    return next;
  }

  function startNext(): void {
    const key = runningInAll < total ? findNextKey() : undefined;
    if (key === undefined) return;
    for (const start of waiting.get(key) ?? []) {
      leave(key, start);
      count(key, 1);
      start();
      return;
    }
  }

  /** Takes a task out of its queue, and moves its key to the end. */
  function leave(key: string, start: () => void): void {
    const queue = waiting.get(key);
    if (!queue?.delete(start)) return;
    waiting.delete(key);
    if (queue.size > 0) waiting.set(key, queue);
  }

  function count(key: string, by: 1 | -1): void {
    runningInAll += by;
    const left = (running.get(key) ?? 0) + by;
    if (left > 0) running.set(key, left);
    else running.delete(key);
  }

  /** Resolves once the task may run. */
  function waitForSlot(key: string, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const start = () => {
        signal?.removeEventListener("abort", giveUp);
        resolve();
      };
      const giveUp = () => {
        leave(key, start);
        reject(signal?.reason);
      };
      signal?.addEventListener("abort", giveUp, { once: true });
      const queue = waiting.get(key) ?? new Set();
      waiting.set(key, queue.add(start));
      startNext();
    });
  }

  return async (key, work, signal) => {
    await waitForSlot(key, signal);
    try {
      return await work();
    } finally {
      count(key, -1);
      startNext();
    }
  };
}
