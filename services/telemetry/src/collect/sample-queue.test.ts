import { describe, expect, test } from "vitest";
import type { MetricRow } from "../domain/rows.ts";
import { createSampleQueue } from "./sample-queue.ts";

const rowAt = (timeNs: number): MetricRow => ({ timeNs: BigInt(timeNs), cpuSeconds: 0, memoryBytes: 0 });

/** A store that is as slow as the test wants. */
function openStore() {
  const stored: number[][] = [];
  let done = Promise.withResolvers<void>();
  return {
    stored,
    async store(take: () => readonly MetricRow[]) {
      stored.push(take().map(({ timeNs }) => Number(timeNs)));
      await done.promise;
    },
    finish() {
      done.resolve();
      done = Promise.withResolvers();
    },
    fail: (error: Error) => done.reject(error),
  };
}

describe("samples on their way to the store", () => {
  test("are stored in order, those that come meanwhile together", async () => {
    const { stored, store, finish } = openStore();
    const queue = createSampleQueue(store);
    for (const time of [1, 2, 3]) queue.add(rowAt(time));
    expect(stored).toEqual([[1]]);
    finish();
    await Promise.resolve();
    await Promise.resolve();
    const flushed = queue.flush();
    finish();
    await flushed;
    expect(stored).toEqual([[1], [2, 3]]);
  });

  test("go along with those that come before their turn", async () => {
    const stored: bigint[][] = [];
    const turn = Promise.withResolvers<void>();
    const queue = createSampleQueue(async (take) => {
      await turn.promise;
      stored.push(take().map(({ timeNs }) => timeNs));
    });
    for (const time of [1, 2, 3]) queue.add(rowAt(time));
    turn.resolve();
    await queue.flush();
    expect(stored).toEqual([[1n, 2n, 3n]]);
  });

  test("are few while nothing can be stored: the newest", async () => {
    const { stored, store, finish } = openStore();
    const queue = createSampleQueue(store);
    for (let time = 0; time <= 1_000; time++) queue.add(rowAt(time));
    finish();
    await Promise.resolve();
    const flushed = queue.flush();
    setImmediate(finish);
    await flushed;
    expect(stored.at(-1)).toEqual(Array.from({ length: 120 }, (_, i) => 881 + i));
  });

  test("are given up when the store refuses them", async () => {
    const { stored, store, fail } = openStore();
    const queue = createSampleQueue(store);
    queue.add(rowAt(1));
    queue.throwIfFailed();
    fail(new Error("refused"));
    await expect(queue.flush()).rejects.toThrow("refused");
    expect(queue.throwIfFailed).toThrow("refused");
    queue.add(rowAt(2));
    await expect(queue.flush()).rejects.toThrow("refused");
    expect(stored).toHaveLength(1);
  });
});
