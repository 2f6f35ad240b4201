import { until } from "@sandgate/test-support/until";
import fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import type { LogRow } from "../store/rows.ts";
import { batchLimits, createBatcher } from "./batches.ts";

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
          async send(rows, cursor) {
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
    const send = vi.fn(async () => undefined);
    const batcher = createBatcher({ send, onFailure: () => undefined });
    await batcher.add(blockOf(1, "a"));
    await until(() => expect(send).toHaveBeenCalledOnce());
    expect(send).toHaveBeenCalledWith([{ timeNs: 1n, stream: "stdout", log: "x" }], "a");
  });

  test("a failure is reported once, and nothing is sent after it", async () => {
    const onFailure = vi.fn();
    const send = vi.fn(async () => {
      throw new Error("no store");
    });
    const batcher = createBatcher({ send, onFailure });
    await batcher.add(blockOf(1, "a"));
    await expect(batcher.flush()).rejects.toThrow("no store");
    await expect(batcher.add(blockOf(1, "b"))).rejects.toThrow("no store");
    await expect(batcher.flush()).rejects.toThrow("no store");
    expect(onFailure).toHaveBeenCalledOnce();
    expect(send).toHaveBeenCalledOnce();
  });
});
