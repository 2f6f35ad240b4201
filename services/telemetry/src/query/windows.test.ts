import fc from "fast-check";
import { expect, test } from "vitest";
import { type Numbered, toMicros } from "../store/rows.ts";
import { newestRows } from "./windows.ts";

interface Row {
  timeNs: bigint;
  wanted: boolean;
  bytes: number;
}

interface RowChunk {
  lastUs: number;
  rows: Numbered<Row>[];
}

/** Few different times, some within one microsecond, so that ties and chunks that overlap in time are common. */
const row = fc.record({
  timeNs: fc.bigInt({ min: 0n, max: 20_000n }),
  wanted: fc.boolean(),
  bytes: fc.integer({ min: 1, max: 9 }),
});

/** Cuts the rows into chunks, which come as a store gives them. */
function toChunks(rows: readonly Numbered<Row>[], sizes: readonly number[]): RowChunk[] {
  const chunks: RowChunk[] = [];
  for (let at = 0, i = 0; at < rows.length; i += 1) {
    const part = rows.slice(at, at + (sizes[i % sizes.length] ?? 1));
    chunks.push({ lastUs: Math.max(...part.map((each) => toMicros(each.timeNs))), rows: part });
    at += part.length;
  }
  return chunks.sort((a, b) => b.lastUs - a.lastUs || (b.rows[0]?.sequence ?? 0) - (a.rows[0]?.sequence ?? 0));
}

async function* each<T>(items: readonly T[]): AsyncGenerator<T> {
  yield* items;
}

test("the newest rows are those that a sort and a slice give, within the bytes", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(row, { maxLength: 60 }),
      fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 1, maxLength: 5 }),
      fc.tuple(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 9, max: 120 })),
      fc.tuple(fc.bigInt({ min: 0n, max: 20_000n }), fc.bigInt({ min: 0n, max: 20_001n })),
      async (rows, sizes, [limit, maxBytes], [sinceNs, untilNs]) => {
        const numbered = rows.map((each, i) => ({ ...each, sequence: i + 1 }));
        let bytesLeft = maxBytes;
        const fits = ({ bytes }: Row) => {
          bytesLeft -= bytes;
          return bytesLeft >= 0;
        };
        const sorted = numbered
          .filter((each) => each.wanted && each.timeNs >= sinceNs && each.timeNs < untilNs)
          .sort((a, b) => Number(a.timeNs - b.timeNs) || a.sequence - b.sequence)
          .slice(-limit);
        const expected = sorted.slice(sorted.findLastIndex((each) => !fits(each)) + 1);
        const actual = await newestRows<RowChunk, Row>({
          window: { sinceNs, untilNs },
          limit,
          chunks: each(toChunks(numbered, sizes)),
          decode: async (chunk) => chunk.rows,
          keeps: (each) => each.wanted,
          maxBytes,
          bytesOf: ({ bytes }) => bytes,
        });
        expect(actual).toEqual(expected);
      },
    ),
  );
});

test("chunks that can't hold one of the rows are not decoded", async () => {
  const rows = Array.from({ length: 100 }, (_, i) => ({
    timeNs: BigInt(i) * 1_000n,
    wanted: true,
    bytes: 1,
    sequence: i + 1,
  }));
  let decoded = 0;
  const newest = await newestRows<RowChunk, Row>({
    window: { sinceNs: 0n, untilNs: 1_000_000n },
    limit: 15,
    chunks: each(toChunks(rows, [10])),
    decode: async (chunk) => {
      decoded += 1;
      return chunk.rows;
    },
    keeps: () => true,
    maxBytes: 100,
    bytesOf: ({ bytes }) => bytes,
  });
  expect(newest.map((each) => each.sequence)).toEqual(Array.from({ length: 15 }, (_, i) => 86 + i));
  expect(decoded).toBe(2);
});
