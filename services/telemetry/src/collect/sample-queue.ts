import type { MetricRow } from "../domain/rows.ts";

/** The most samples of a container that wait, some ten minutes of them; the oldest go first. */
const maxWaiting = 120;

/** Samples of one container on their way to the store, in their order. */
export interface SampleQueue {
  /** Doesn't wait: what comes while others are being stored is stored with the next batch. */
  add(row: MetricRow): void;
  /** Throws what `store` threw, if it did. */
  throwIfFailed(): void;
  /** Waits until all are stored. Throws what `store` threw. */
  flush(): Promise<void>;
}

/**
 * `store` is called for one batch at a time, and takes what waits when it can store it. When it throws, it isn't called
 * again.
 */
export function createSampleQueue(store: (take: () => readonly MetricRow[]) => Promise<void>): SampleQueue {
  let waiting: MetricRow[] = [];
  let storing: Promise<void> | undefined;
  let failure: { error: unknown } | undefined;

  const take = () => {
    const batch = waiting;
    waiting = [];
    return batch;
  };
  async function storeAll(): Promise<void> {
    try {
      while (waiting.length > 0) await store(take);
    } catch (error) {
      failure = { error };
    } finally {
      storing = undefined;
    }
  }
  const throwIfFailed = () => {
    if (failure) throw failure.error;
  };

  return {
    add(row) {
      waiting.push(row);
      if (waiting.length > maxWaiting) waiting.shift();
      if (!failure) storing ??= storeAll();
    },
    throwIfFailed,
    async flush() {
      await storing;
      throwIfFailed();
    },
  };
}
