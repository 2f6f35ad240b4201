import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  type Chunk,
  encodeLogs,
  encodeMetrics,
  fitsInto,
  mergeChunks,
  openLogs,
  openMetrics,
  rowsOf,
} from "./chunks.ts";
import { type LogRow, type MetricRow, streamNames, toMicros } from "./rows.ts";

const time = fc.bigInt({ min: 0n, max: 4_000_000_000_000_000_000n });
const logRow: fc.Arbitrary<LogRow> = fc.record({
  timeNs: time,
  stream: fc.constantFrom(...streamNames),
  log: fc.string({ unit: "grapheme" }),
});
const metricRow: fc.Arbitrary<MetricRow> = fc.record({
  timeNs: time,
  cpuSeconds: fc.double({ min: 0, noNaN: true }),
  memoryBytes: fc.double({ min: 0, noNaN: true }),
});
const stored = ({ rows, textBytes, body }: Chunk) => ({ firstSequence: 1, lastSequence: rows, textBytes, body });
const some = { minLength: 1, maxLength: 50 };

describe("chunks", () => {
  test("give lines back as they were, with a correct summary", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(logRow, some), async (rows) => {
        const chunk = await encodeLogs(rows);
        const opened = await openLogs(stored(chunk));
        expect(rowsOf(opened)).toEqual(rows);
        rows.forEach(({ log, stream }, i) => {
          expect([opened.textBytesAt(i), opened.streamAt(i)]).toEqual([Buffer.byteLength(log), stream]);
        });
        const times = rows.map((row) => toMicros(row.timeNs));
        expect(chunk).toMatchObject({
          kind: "logs",
          rows: rows.length,
          stdoutRows: rows.filter((row) => row.stream === "stdout").length,
          stderrRows: rows.filter((row) => row.stream === "stderr").length,
          firstUs: Math.min(...times),
          lastUs: Math.max(...times),
          textBytes: Buffer.byteLength(rows.map((row) => row.log).join("")) + 13 * rows.length,
        });
      }),
    );
  });

  test("give samples back as they were", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(metricRow, some), async (rows) => {
        expect(rowsOf(await openMetrics(stored(await encodeMetrics(rows))))).toEqual(rows);
      }),
    );
  });

  test("merged are as if encoded together", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(logRow, some), fc.array(logRow, some), async (first, second) => {
        const [a, b] = [await encodeLogs(first), await encodeLogs(second)];
        const { body, ...summary } = mergeChunks(a, b);
        expect(rowsOf(await openLogs(stored({ ...summary, body })))).toEqual([...first, ...second]);
        expect(await encodeLogs([...first, ...second])).toMatchObject(summary);
      }),
      { numRuns: 30 },
    );
    await fc.assert(
      fc.asyncProperty(fc.array(metricRow, some), fc.array(metricRow, some), async (first, second) => {
        const { body, ...summary } = mergeChunks(await encodeMetrics(first), await encodeMetrics(second));
        expect(rowsOf(await openMetrics(stored({ ...summary, body })))).toEqual([...first, ...second]);
        expect(await encodeMetrics([...first, ...second])).toMatchObject(summary);
      }),
      { numRuns: 30 },
    );
  });

  test("are merged while they are small", async () => {
    const row: LogRow = { timeNs: 1n, stream: "stdout", log: "x".repeat(1_000) };
    const one = await encodeLogs([row]);
    expect(fitsInto(await encodeLogs(Array(63).fill(row)), one)).toBe(true);
    expect(fitsInto(await encodeLogs(Array(64).fill(row)), one)).toBe(false);
    const empty = { ...row, log: "" };
    expect(fitsInto(await encodeLogs(Array(1_000).fill(empty)), one)).toBe(false);
  });

  test("are merged up to a day from the earliest row to the latest, whichever comes first", async () => {
    const dayNs = 24n * 3_600n * 1_000_000_000n;
    const at = (timeNs: bigint) => encodeLogs([{ timeNs, stream: "stdout", log: "x" }]);
    const first = await at(dayNs);
    expect(fitsInto(first, await at(2n * dayNs))).toBe(true);
    const merged = mergeChunks(first, await at(dayNs + dayNs / 2n));
    expect(fitsInto(merged, await at(2n * dayNs + 1_000n))).toBe(false);
    expect(fitsInto(merged, await at(dayNs / 2n - 1_000n))).toBe(false);
  });
});
