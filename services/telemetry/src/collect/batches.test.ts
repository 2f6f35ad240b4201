import { until } from "@sandgate/test-support/until";
import fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import type { LogRow } from "../domain/rows.ts";
import { batchLimits, createBatcher } from "./batches.ts";
import type { LogBlock } from "./container-source.ts";
import { createMemoryBudget } from "./memory-budget.ts";

const { signal } = new AbortController();
const unlimited = () => ({ budget: createMemoryBudget(Number.POSITIVE_INFINITY), signal });

const blockOf = (count: number, cursor: string, log = "x") => ({
  rows: Array.from({ length: count }, (): LogRow => ({ timeNs: 1n, stream: "stdout", log })),
  cursor,
});

describe("batches", () => {
  test("hold every block once, in order, within the limits, and one is sent at a time", async () => {
    const block = fc.record({ count: fc.integer({ min: 1, max: 2_000 }), size: fc.integer({ min: 0, max: 400 }) });
    await fc.assert(
      fc.asyncProperty(fc.array(block, { maxLength: 30 }), async (blocks) => {
        const sent: { rows: number; bytes: number; cursor: string }[] = [];
        let sending = 0;
        const batcher = createBatcher({
          ...unlimited(),
          async send(take) {
            const { rows, cursor } = take();
            expect(++sending).toBe(1);
            await new Promise((resolve) => setImmediate(resolve));
            const bytes = rows.reduce((sum, row) => sum + row.log.length, 0);
            sent.push({ rows: rows.length, bytes, cursor });
            sending -= 1;
          },
          onFailure: (error) => {
            throw error;
          },
        });
        for (const [i, { count, size }] of blocks.entries()) {
          await batcher.add(blockOf(count, `${i}`, "x".repeat(size)));
        }
        await batcher.flush();
        expect(sent.reduce((sum, batch) => sum + batch.rows, 0)).toBe(
          blocks.reduce((sum, each) => sum + each.count, 0),
        );
        expect(sent.every((batch) => batch.rows <= batchLimits.rows && batch.bytes <= batchLimits.textBytes)).toBe(
          true,
        );
        expect(sent.at(-1)?.cursor).toBe(blocks.length > 0 ? `${blocks.length - 1}` : undefined);
      }),
      { numRuns: 30 },
    );
  });

  test("a single block is sent by itself after a while", async () => {
    const sent: LogBlock[] = [];
    const send = async (take: () => LogBlock) => void sent.push(take());
    const batcher = createBatcher({ ...unlimited(), send, onFailure: () => undefined });
    await batcher.add(blockOf(1, "a"));
    await until(() => expect(sent).toEqual([blockOf(1, "a")]));
  });

  test("a batch whose turn to be sent has not come fills on", async () => {
    const sent: LogBlock[] = [];
    const turn = Promise.withResolvers<void>();
    const send = vi.fn(async (take: () => LogBlock) => {
      await turn.promise;
      sent.push(take());
    });
    const batcher = createBatcher({ ...unlimited(), send, onFailure: () => undefined });
    await batcher.add(blockOf(1, "a"));
    await until(() => expect(send).toHaveBeenCalledOnce());
    await batcher.add(blockOf(2, "b"));
    // Its rows are not dropped: whoever has the cursor after them has them too.
    const closed = batcher.close();
    turn.resolve();
    await closed;
    expect(sent).toEqual([blockOf(3, "b")]);
  });

  test("a failure is reported once, and nothing is sent after it", async () => {
    const onFailure = vi.fn();
    const send = vi.fn(async () => {
      throw new Error("no store");
    });
    const batcher = createBatcher({ ...unlimited(), send, onFailure });
    await batcher.add(blockOf(1, "a"));
    await expect(batcher.flush()).rejects.toThrow("no store");
    await expect(batcher.add(blockOf(1, "b"))).rejects.toThrow("no store");
    await expect(batcher.flush()).rejects.toThrow("no store");
    expect(onFailure).toHaveBeenCalledOnce();
    expect(send).toHaveBeenCalledOnce();
  });

  test("of many containers hold no more together than their budget, and all are sent", async () => {
    const maxBytes = 100_000;
    let waiting = 0;
    let most = 0;
    let sent = 0;
    const budget = createMemoryBudget(maxBytes);
    await Promise.all(
      Array.from({ length: 50 }, async () => {
        const batcher = createBatcher({
          budget,
          signal,
          async send(take) {
            const { rows } = take();
            await new Promise((resolve) => setImmediate(resolve));
            for (const { log } of rows) waiting -= log.length;
            sent += rows.length;
          },
          onFailure: (error) => {
            throw error;
          },
        });
        for (let i = 0; i < 20; i++) {
          await batcher.add(blockOf(5, `${i}`, "x".repeat(2_000)));
          waiting += 10_000;
          most = Math.max(most, waiting);
        }
        await batcher.flush();
        await batcher.close();
      }),
    );
    expect(sent).toBe(50 * 20 * 5);
    expect(most).toBeLessThanOrEqual(maxBytes);
    expect(budget.tryReserve(maxBytes)).toBe(true);
  });

  test("give their budget back when they are dropped, also after a failure", async () => {
    const budget = createMemoryBudget(1_000);
    const send = async () => {
      throw new Error("no store");
    };
    for (const isSent of [false, true]) {
      const batcher = createBatcher({ budget, signal, send, onFailure: () => undefined });
      await batcher.add(blockOf(1, "a"));
      if (isSent) await expect(batcher.flush()).rejects.toThrow("no store");
      await batcher.close();
    }
    expect(budget.tryReserve(1_000)).toBe(true);
  });
});

describe("the memory budget", () => {
  test("is given in turn, and to what is larger than it once nobody else has any", async () => {
    const budget = createMemoryBudget(10);
    const order: string[] = [];
    expect(budget.tryReserve(6)).toBe(true);
    const large = budget.reserve(20, signal).then(() => order.push("large"));
    const small = budget.reserve(1, signal).then(() => order.push("small"));
    expect(budget.tryReserve(1)).toBe(false);
    budget.release(6);
    await large;
    expect(order).toEqual(["large"]);
    budget.release(20);
    await small;
    expect(order).toEqual(["large", "small"]);
  });

  test("is not kept for a waiter that has given up", async () => {
    const budget = createMemoryBudget(10);
    const gone = new AbortController();
    expect(budget.tryReserve(6)).toBe(true);
    const large = budget.reserve(9, gone.signal);
    const small = budget.reserve(1, signal);
    gone.abort(new Error("gone"));
    await expect(large).rejects.toThrow("gone");
    await small;
    expect(budget.tryReserve(3)).toBe(true);
    await expect(budget.reserve(1, gone.signal)).rejects.toThrow("gone");
  });
});
