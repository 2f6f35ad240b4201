import fc from "fast-check";
import { expect, test } from "vitest";
import type { OpenChunk, StoredChunk } from "../domain/chunks.ts";
import { type Numbered, toMicros } from "../domain/rows.ts";
import { newestRows, type RowPosition, rowBytes } from "./windows.ts";

interface Row {
  timeNs: bigint;
  wanted: boolean;
  bytes: number;
}

/** Few different times, some within one microsecond, so that ties and chunks that overlap in time are common. */
const row = fc.record({
  timeNs: fc.bigInt({ min: 0n, max: 20_000n }),
  wanted: fc.boolean(),
  bytes: fc.integer({ min: 1, max: 9 }),
});

/** Cuts the rows into chunks, which come as a store gives them; a body is the number of the chunk's rows. */
function toChunks(rows: readonly Numbered<Row>[], sizes: readonly number[]) {
  const chunks: StoredChunk[] = [];
  const parts: Numbered<Row>[][] = [];
  for (let at = 0, i = 0; at < rows.length; i += 1) {
    const part = rows.slice(at, at + (sizes[i % sizes.length] ?? 1));
    const lastUs = Math.max(...part.map((each) => toMicros(each.timeNs)));
    const sequences = { firstSequence: at + 1, lastSequence: at + part.length };
    chunks.push({ ...sequences, lastUs, textBytes: 0, body: Uint8Array.of(parts.push(part) - 1) });
    at += part.length;
  }
  chunks.sort((a, b) => b.lastUs - a.lastUs || b.firstSequence - a.firstSequence);
  let opened = 0;
  return {
    opened: () => opened,
    chunks: async function* () {
      yield* chunks;
    },
    async open({ body }: StoredChunk): Promise<OpenChunk<Row>> {
      opened += 1;
      const part = parts[body[0] ?? Number.NaN] ?? [];
      return {
        timesNs: part.map(({ timeNs }) => timeNs),
        textBytesAt: (index) => part[index]?.bytes ?? Number.NaN,
        rowAt: (index) => {
          const { timeNs, wanted, bytes } = part[index] ?? {};
          if (timeNs === undefined || wanted === undefined || bytes === undefined) throw new RangeError();
          return { timeNs, wanted, bytes };
        },
      };
    },
  };
}

const isWanted = (chunk: OpenChunk<Row>, index: number) => chunk.rowAt(index).wanted;

test("pages have the rows that a sort and a slice give, the newest first, each within its rows and bytes", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(row, { maxLength: 60 }),
      fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 1, maxLength: 5 }),
      fc.tuple(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 9, max: 500 }), fc.integer({ min: 1, max: 5 })),
      fc.tuple(fc.bigInt({ min: 0n, max: 20_000n }), fc.bigInt({ min: 0n, max: 20_001n })),
      async (rows, sizes, [limit, maxBytes, maxChunks], [sinceNs, untilNs]) => {
        const numbered = rows.map((each, i) => ({ ...each, sequence: i + 1 }));
        const left = numbered
          .filter((each) => each.wanted && each.timeNs >= sinceNs && each.timeNs < untilNs)
          .sort((a, b) => Number(a.timeNs - b.timeNs) || a.sequence - b.sequence);
        const stored = toChunks(numbered, sizes);
        let before: RowPosition | undefined;
        do {
          const opened = stored.opened();
          const page = await newestRows<Row, OpenChunk<Row>>({
            window: { sinceNs, untilNs },
            before,
            limit,
            maxBytes,
            maxChunks,
            chunks: stored.chunks(),
            open: stored.open,
            keeps: isWanted,
          });
          expect(page.rows).toEqual(left.splice(left.length - page.rows.length));
          expect(page.bytes).toBe(page.rows.reduce((sum, { bytes }) => sum + bytes + rowBytes, 0));
          expect(page.rows.length).toBeLessThanOrEqual(limit);
          if (page.rows.length > 1) expect(page.bytes).toBeLessThanOrEqual(maxBytes);
          if (page.rows.length === 0 && page.before) expect(stored.opened() - opened).toBeGreaterThanOrEqual(maxChunks);
          before = page.before;
        } while (before);
        expect(left).toEqual([]);
      },
    ),
  );
});

const rowsAt = (times: readonly bigint[]) =>
  times.map((timeNs, i) => ({ timeNs, wanted: true, bytes: 1, sequence: i + 1 }));

test("chunks that can't hold one of the rows are not opened", async () => {
  const stored = toChunks(rowsAt(Array.from({ length: 100 }, (_, i) => BigInt(i) * 1_000n)), [10]);
  const { rows } = await newestRows<Row, OpenChunk<Row>>({
    window: { sinceNs: 0n, untilNs: 1_000_000n },
    limit: 15,
    maxBytes: 1_000,
    maxChunks: 100,
    chunks: stored.chunks(),
    open: stored.open,
    keeps: isWanted,
  });
  expect(rows.map((each) => each.sequence)).toEqual(Array.from({ length: 15 }, (_, i) => 86 + i));
  expect(stored.opened()).toBe(2);
});

test("a page that finds nothing ends after so many chunks, and the next one goes on there", async () => {
  const stored = toChunks(rowsAt(Array.from({ length: 100 }, (_, i) => BigInt(i) * 1_000n)), [10]);
  const query = {
    window: { sinceNs: 0n, untilNs: 1_000_000n },
    limit: 15,
    maxBytes: 1_000,
    maxChunks: 4,
    open: stored.open,
    keeps: () => false,
  };
  const first = await newestRows<Row, OpenChunk<Row>>({ ...query, chunks: stored.chunks() });
  expect(first).toEqual({ rows: [], bytes: 0, before: { timeNs: 60_000n, sequence: 0 } });
  expect(stored.opened()).toBe(4);
});
