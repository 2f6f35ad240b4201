/**
 * Runs work under a limit for its key and a limit for all keys together. An abort ends the wait for a slot, which then
 * throws the signal's reason; work that has begun runs to its end and keeps its slot until then.
 */
export type FairLimit = <T>(key: string, work: () => Promise<T>, signal?: AbortSignal) => Promise<T>;

/**
 * A concurrency limit that no key can use up: at most `total` tasks run at once (no limit unless given), and at most `perKey`
 * of one key, however idle the others are. A slot goes to the waiting key that has the fewest, so a key that took many while
 * nobody else waited gives them up as its tasks end. Neither `p-limit` nor `p-queue` has keys, and with `p-queue` an abort
 * also frees the slot of work that still runs.
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
  /** The starts of waiting tasks, oldest first. The key that had a slot last is the last. */
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

  /** Takes a task out of the queue, and its key to the end of the order. */
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
