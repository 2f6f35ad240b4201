import { describe, expect, test } from "vitest";
import { chooseOldest, decidePurgeBatch, purgeLimits } from "./removals.ts";

describe("the oldest log chunks of a sandbox", () => {
  const chunks = [1, 11, 21, 31].map((firstSequence) => ({
    firstSequence,
    lastSequence: firstSequence + 9,
    textBytes: 100,
  }));

  test("go until they come to the bytes", () => {
    expect(chooseOldest("s", chunks, { bytes: 101, chunks: 32 })).toEqual({
      chosen: chunks.slice(0, 2),
      removal: { chunks: 2, lines: 20, bytes: 200 },
    });
    expect(chooseOldest("s", chunks, { bytes: 0, chunks: 32 }).chosen).toEqual([]);
  });

  test("are no more than the limit says", () => {
    expect(chooseOldest("s", chunks, { bytes: 1_000, chunks: 3 }).chosen).toEqual(chunks.slice(0, 3));
  });

  test("are not the one with the rows just stored", () => {
    const limits = { bytes: 1_000, chunks: 32, keep: new Map([["s", 40]]) };
    expect(chooseOldest("s", chunks, limits).chosen).toEqual(chunks.slice(0, 3));
    expect(chooseOldest("other", chunks, limits).chosen).toEqual(chunks);
  });
});

describe("a purge", () => {
  const limits = { ...purgeLimits, textBytes: 32 * 1024 * 1024 };
  const chunksOf = (mb: number, count: number) =>
    Array.from({ length: count }, () => ({ textBytes: mb * 1024 * 1024 }));
  const decide = (chunks: { textBytes: number }[]) => decidePurgeBatch({ sandboxIds: ["s"], chunks }, limits);

  test("takes so many bytes of lines at once, and at least one chunk", () => {
    expect(decide(chunksOf(1, 40)).chunks).toHaveLength(32);
    expect(decide(chunksOf(0.01, 500)).chunks).toHaveLength(500);
    expect(decide(chunksOf(64, 2)).chunks).toHaveLength(1);
    expect(decide([]).chunks).toEqual([]);
  });

  test("removes sandboxes with the last of their chunks", () => {
    expect(decide(chunksOf(1, 40))).toMatchObject({ textBytes: 32 * 1024 * 1024, sandboxIds: [], more: true });
    expect(decide(chunksOf(0.01, 500))).toMatchObject({ sandboxIds: [], more: true });
    expect(decide(chunksOf(1, 8))).toMatchObject({ sandboxIds: ["s"], more: false });
    const sandboxIds = Array.from({ length: limits.sandboxes }, (_, i) => `${i}`);
    expect(decidePurgeBatch({ sandboxIds, chunks: [] }, limits)).toMatchObject({ sandboxIds, more: true });
  });
});
