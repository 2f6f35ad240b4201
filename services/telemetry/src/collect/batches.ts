import { textBytesOf } from "../store/chunks.ts";
import { type LogRow, maxBatchBytes } from "../store/rows.ts";
import type { LogBlock } from "./container-source.ts";

/** What one batch holds at most, and how long its first row waits for more. */
export const batchLimits = { rows: 5_000, textBytes: maxBatchBytes, waitMs: 250 };

/** Collects blocks of lines into batches. One is sent while the next fills; `add` waits when that is full. */
export interface Batcher {
  add(block: LogBlock): Promise<void>;
  /** Sends what has been collected and waits until it is stored. */
  flush(): Promise<void>;
}

/**
 * `send` is called with one batch at a time. When it fails, `onFailure` is called once, what was collected is dropped, and
 * `add` and `flush` throw the same error.
 */
export function createBatcher(o: {
  send(rows: readonly LogRow[], cursor: string): Promise<void>;
  onFailure(error: unknown): void;
}): Batcher {
  let rows: LogRow[] = [];
  let textBytes = 0;
  let cursor = "";
  let sending: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let failure: { error: unknown } | undefined;

  const begin = () => {
    clearTimeout(timer);
    timer = undefined;
    if (rows.length === 0 || failure) return;
    const batch = rows;
    const end = cursor;
    rows = [];
    textBytes = 0;
    sending = o
      .send(batch, end)
      .catch((error: unknown) => {
        failure = { error };
        o.onFailure(error);
      })
      .finally(() => {
        sending = undefined;
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

  return {
    async add(block) {
      const size = block.rows.reduce((sum, row) => sum + textBytesOf(row), 0);
      if (rows.length + block.rows.length > batchLimits.rows || textBytes + size > batchLimits.textBytes)
        await sendNext();
      if (failure) throw failure.error;
      for (const row of block.rows) rows.push(row);
      textBytes += size;
      cursor = block.cursor;
      timer ??= setTimeout(() => {
        // `onFailure` has been called with whatever `settle` throws.
        sendNext().catch(() => undefined);
      }, batchLimits.waitMs);
    },
    async flush() {
      await sendNext();
      await settle();
    },
  };
}
