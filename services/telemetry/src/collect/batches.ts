import { textBytesOf } from "../domain/chunks.ts";
import { type LogRow, maxBatchBytes } from "../domain/rows.ts";
import type { LogBlock } from "./container-source.ts";
import type { MemoryBudget } from "./memory-budget.ts";

/** What one batch holds at most, and how long its first row waits for more. */
export const batchLimits = { rows: 5_000, textBytes: maxBatchBytes, waitMs: 250 };

/** What a row takes in memory besides its text, about. */
const rowBytes = 200;

/**
 * Collects blocks of lines into batches. A batch fills until it is taken, and the next while it is sent. `add` waits
 * while that is full or the budget of all batches is used up.
 */
export interface Batcher {
  add(block: LogBlock): Promise<void>;
  /** Sends what has been collected and waits until it is stored. */
  flush(): Promise<void>;
  /**
   * Waits until what is being sent is stored, so that the log isn't read again from before it, and drops the rest.
   * Nothing may be called after that.
   */
  close(): Promise<void>;
}

/**
 * `send` is called for one batch at a time, and takes what has been collected when it can send it. When it fails,
 * `onFailure` is called once, what was collected is dropped, and `add` and `flush` throw the same error.
 */
export function createBatcher(o: {
  send(take: () => LogBlock): Promise<void>;
  onFailure(error: unknown): void;
  budget: MemoryBudget;
  /** Ends a wait for the budget. */
  signal: AbortSignal;
}): Batcher {
  const { budget } = o;
  let rows: LogRow[] = [];
  let textBytes = 0;
  let takenBytes = 0;
  let cursor = "";
  let sending: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let failure: { error: unknown } | undefined;

  const begin = () => {
    clearTimeout(timer);
    timer = undefined;
    if (rows.length === 0 || failure) return;
    let batchBytes = 0;
    const take = () => {
      const batch = { rows, cursor };
      batchBytes = takenBytes;
      rows = [];
      textBytes = 0;
      takenBytes = 0;
      return batch;
    };
    sending = o
      .send(take)
      .catch((error: unknown) => {
        failure = { error };
        o.onFailure(error);
      })
      .finally(() => {
        sending = undefined;
        budget.release(batchBytes);
      });
  };
  /** Waits for the batch that is being sent, so that there is never more than one. */
  const settle = async () => {
    while (sending) await sending;
    if (failure) throw failure.error;
  };
  const sendNext = async () => {
    await settle();
    if (sending) return sendNext();
    begin();
  };

  async function flush(): Promise<void> {
    await sendNext();
    await settle();
  }

  return {
    async add(block) {
      const size = block.rows.reduce((sum, row) => sum + textBytesOf(row), 0);
      const bytes = size + block.rows.length * rowBytes;
      if (rows.length + block.rows.length > batchLimits.rows || textBytes + size > batchLimits.textBytes)
        await sendNext();
      if (failure) throw failure.error;
      if (!budget.tryReserve(bytes)) {
        // Whoever waits for the budget holds none of it, or all could wait for each other.
        await flush();
        await budget.reserve(bytes, o.signal);
      }
      takenBytes += bytes;
      for (const row of block.rows) rows.push(row);
      textBytes += size;
      cursor = block.cursor;
      timer ??= setTimeout(() => {
        // `onFailure` has been called with whatever `settle` throws.
        sendNext().catch(() => undefined);
      }, batchLimits.waitMs);
    },
    flush,
    async close() {
      clearTimeout(timer);
      await sending;
      budget.release(takenBytes);
      takenBytes = 0;
      rows = [];
    },
  };
}
