import { promisify } from "node:util";
import { zstdCompress, zstdCompressSync, zstdDecompress, zstdDecompressSync } from "node:zlib";
import { dayMs } from "@sandgate/kit/base/time";
import { type LogRow, type MetricRow, type StreamName, toMicros } from "./rows.ts";

export type ChunkKind = "logs" | "metrics";

/** Rows of one kind in the source's order, compressed, and what the indexes need of them. */
export interface Chunk {
  kind: ChunkKind;
  rows: number;
  stdoutRows: number;
  stderrRows: number;
  /** The earliest and the latest time in microseconds. */
  firstUs: number;
  lastUs: number;
  /** What the log quota counts: the lines' bytes in UTF-8, and `lineBytes` for each line. 0 for metrics. */
  textBytes: number;
  body: Uint8Array;
}

/**
 * Up to these sizes, a new batch is merged into the newest chunk: a line a second must not make a chunk a second. And up
 * to this time from the earliest to the latest row, since a chunk expires as a whole, with its latest.
 */
export const maxMerged = { rows: 1_000, textBytes: 64 * 1024, us: dayMs * 1000 };

/** What a packed chunk begins with: the number of its rows. */
const rowCountBytes = 4;

/** What a row has in each column, as packed below. */
const columnBytes = { logs: [8, 1, 4], metrics: [8, 8, 8] } as const;

/** What a line takes besides its text. Empty lines fill a disk too. */
const lineBytes = columnBytes.logs.reduce((sum, bytes) => sum + bytes, 0);
const sampleBytes = columnBytes.metrics.reduce((sum, bytes) => sum + bytes, 0);

/** Up to this size rows are compressed at once. */
const smallBytes = 4 * 1024;
const minBufferBytes = 256;

const compress = promisify(zstdCompress);
const decompress = promisify(zstdDecompress);

/** Encodes at least one line. */
export async function encodeLogs(rows: readonly LogRow[]): Promise<Chunk> {
  const packed = packLogs(rows);
  return { ...summarizeLogs(rows), body: await compressed(packed) };
}

/** Encodes at least one sample. */
export async function encodeMetrics(rows: readonly MetricRow[]): Promise<Chunk> {
  const packed = packMetrics(rows);
  return { ...summarizeMetrics(rows), body: await compressed(packed) };
}

/** A decompressed chunk, in the source's order. A row is decoded when it is asked for, as few of a chunk are needed. */
export interface OpenChunk<R> {
  readonly timesNs: readonly bigint[];
  /** The size of a row's text in UTF-8; 0 for a sample. */
  textBytesAt(index: number): number;
  rowAt(index: number): R;
}

export interface OpenLogChunk extends OpenChunk<LogRow> {
  streamAt(index: number): StreamName;
}

/** A chunk as a store gives it back. */
export interface StoredChunk {
  /** Sequences of its first and last rows. */
  firstSequence: number;
  lastSequence: number;
  lastUs: number;
  textBytes: number;
  body: Uint8Array;
}

/** What a chunk's body is decompressed by; the numbers tell how large it becomes. */
export type PackedChunk = Pick<StoredChunk, "firstSequence" | "lastSequence" | "textBytes" | "body">;

/** Decompresses in the thread pool. */
export async function openLogs({ body, textBytes }: PackedChunk): Promise<OpenLogChunk> {
  return openPackedLogs(await decompressTo(body, textBytes));
}

/** Decompresses in the thread pool. */
export async function openMetrics({ body, firstSequence, lastSequence }: PackedChunk): Promise<OpenChunk<MetricRow>> {
  return openPackedMetrics(await decompressTo(body, (lastSequence - firstSequence + 1) * sampleBytes));
}

function decompressTo(body: Uint8Array, bytes: number): Promise<Buffer> {
  return decompress(body, inOnePiece(bytes));
}

/** For a result of about that size: zlib's pieces of 16 KiB, and their copies, keep the garbage collector busy. */
function inOnePiece(bytes: number): { chunkSize: number } {
  return { chunkSize: Math.max(1024, bytes + 64) };
}

/** All rows of a chunk. */
export function rowsOf<R>(chunk: OpenChunk<R>): R[] {
  return chunk.timesNs.map((_, index) => chunk.rowAt(index));
}

/** How many rows a stored chunk has. */
export function rowsIn(chunk: Pick<StoredChunk, "firstSequence" | "lastSequence">): number {
  return chunk.lastSequence - chunk.firstSequence + 1;
}

/** Whether `next` may be merged into `last`, the chunk before it. */
export function fitsInto(last: Times & Pick<Chunk, "rows" | "textBytes">, next: Chunk): boolean {
  const { firstUs, lastUs } = timesOfBoth(last, next);
  return (
    last.rows + next.rows <= maxMerged.rows &&
    last.textBytes + next.textBytes <= maxMerged.textBytes &&
    lastUs - firstUs <= maxMerged.us
  );
}

/** Merges `next` into `last`. Synchronous: both are small (see fitsInto). */
export function mergeChunks(last: Chunk, next: Chunk): Chunk {
  const packed = mergePacked(unpack(last), unpack(next), columnBytes[last.kind]);
  return {
    kind: last.kind,
    rows: last.rows + next.rows,
    stdoutRows: last.stdoutRows + next.stdoutRows,
    stderrRows: last.stderrRows + next.stderrRows,
    ...timesOfBoth(last, next),
    // Counted anew, so that it is right even if one of the chunks was counted for less.
    textBytes: last.kind === "logs" ? packed.length - rowCountBytes : 0,
    body: compressSync(packed),
  };
}

type Times = Pick<Chunk, "firstUs" | "lastUs">;

function timesOfBoth(a: Times, b: Times): Times {
  return { firstUs: Math.min(a.firstUs, b.firstUs), lastUs: Math.max(a.lastUs, b.lastUs) };
}

function unpack({ kind, rows, textBytes, body }: Chunk): Buffer {
  return zstdDecompressSync(body, inOnePiece(kind === "logs" ? textBytes : rows * sampleBytes));
}

/** In the thread pool, unless it takes less time than asking a thread does. */
function compressed(packed: Buffer): Uint8Array | Promise<Uint8Array> {
  return packed.length <= smallBytes ? compressSync(packed) : compress(packed);
}

/** Node would give each call an output buffer of 64 KiB, which is most of the work for some dozens of bytes. */
function compressSync(packed: Buffer): Buffer {
  return zstdCompressSync(packed, { chunkSize: Math.max(minBufferBytes, packed.length) });
}

/** The size of a line in UTF-8. */
export function textBytesOf(row: LogRow): number {
  return Buffer.byteLength(row.log);
}

function summarizeLogs(rows: readonly LogRow[]): Omit<Chunk, "body"> {
  const stderrRows = rows.reduce((count, row) => count + (row.stream === "stderr" ? 1 : 0), 0);
  const textBytes = rows.reduce((sum, row) => sum + textBytesOf(row), rows.length * lineBytes);
  return {
    kind: "logs",
    rows: rows.length,
    stdoutRows: rows.length - stderrRows,
    stderrRows,
    ...timesOf(rows),
    textBytes,
  };
}

function summarizeMetrics(rows: readonly MetricRow[]): Omit<Chunk, "body"> {
  return { kind: "metrics", rows: rows.length, stdoutRows: 0, stderrRows: 0, ...timesOf(rows), textBytes: 0 };
}

/** Lines of the two streams may be slightly out of order, so these are not the times of the first and the last row. */
function timesOf(rows: readonly { timeNs: bigint }[]): Times {
  let firstUs = Number.POSITIVE_INFINITY;
  let lastUs = Number.NEGATIVE_INFINITY;
  for (const { timeNs } of rows) {
    const us = toMicros(timeNs);
    if (us < firstUs) firstUs = us;
    if (us > lastUs) lastUs = us;
  }
  return { firstUs, lastUs };
}

// Columns compress better than rows. Numbers are little-endian.
//   logs:    rows u32 | time i64 … (the first, then differences) | stream u8 … | length u32 … | lines in UTF-8
//   metrics: rows u32 | time i64 … (the first, then differences) | CPU seconds f64 … | memory bytes f64 …

function packLogs(rows: readonly LogRow[]): Buffer {
  const lines = rows.map((row) => Buffer.from(row.log, "utf8"));
  const header = Buffer.allocUnsafe(rowCountBytes + rows.length * lineBytes);
  let at = packTimes(header, rows);
  for (const row of rows) at = header.writeUInt8(row.stream === "stdout" ? 1 : 2, at);
  for (const line of lines) at = header.writeUInt32LE(line.length, at);
  return Buffer.concat([header, ...lines]);
}

function openPackedLogs(packed: Buffer): OpenLogChunk {
  const timesNs = unpackTimes(packed);
  const streams = rowCountBytes + timesNs.length * 8;
  const lengths = streams + timesNs.length;
  /** Where each line ends. */
  const ends = new Uint32Array(timesNs.length);
  let end = lengths + timesNs.length * 4;
  for (let index = 0; index < timesNs.length; index++) {
    end += packed.readUInt32LE(lengths + index * 4);
    ends[index] = end;
  }
  const textBytesAt = (index: number) => packed.readUInt32LE(lengths + index * 4);
  const streamAt = (index: number) => (packed.readUInt8(streams + index) === 1 ? "stdout" : "stderr");
  return {
    timesNs,
    textBytesAt,
    streamAt,
    rowAt(index) {
      const [timeNs, end] = [timesNs[index], ends[index]];
      if (timeNs === undefined || end === undefined) throw new RangeError(`the chunk has no row ${index}`);
      return { timeNs, stream: streamAt(index), log: packed.toString("utf8", end - textBytesAt(index), end) };
    },
  };
}

function packMetrics(rows: readonly MetricRow[]): Buffer {
  const packed = Buffer.allocUnsafe(rowCountBytes + rows.length * sampleBytes);
  let at = packTimes(packed, rows);
  for (const row of rows) at = packed.writeDoubleLE(row.cpuSeconds, at);
  for (const row of rows) at = packed.writeDoubleLE(row.memoryBytes, at);
  return packed;
}

function openPackedMetrics(packed: Buffer): OpenChunk<MetricRow> {
  const timesNs = unpackTimes(packed);
  const cpu = rowCountBytes + timesNs.length * 8;
  const memory = cpu + timesNs.length * 8;
  return {
    timesNs,
    textBytesAt: () => 0,
    rowAt(index) {
      const timeNs = timesNs[index];
      if (timeNs === undefined) throw new RangeError(`the chunk has no row ${index}`);
      return {
        timeNs,
        cpuSeconds: packed.readDoubleLE(cpu + index * 8),
        memoryBytes: packed.readDoubleLE(memory + index * 8),
      };
    },
  };
}

/** Appends the columns of `b` to those of `a`, and its lines, without a row being decoded. */
function mergePacked(a: Buffer, b: Buffer, columns: readonly number[]): Buffer {
  const [rowsOfA, rowsOfB] = [a.readUInt32LE(0), b.readUInt32LE(0)];
  const pieces = [a.subarray(0, rowCountBytes)];
  let [atA, atB] = [rowCountBytes, rowCountBytes];
  for (const bytes of columns) {
    const [endOfA, endOfB] = [atA + rowsOfA * bytes, atB + rowsOfB * bytes];
    pieces.push(a.subarray(atA, endOfA), b.subarray(atB, endOfB));
    [atA, atB] = [endOfA, endOfB];
  }
  const merged = Buffer.concat([...pieces, a.subarray(atA), b.subarray(atB)]);
  merged.writeUInt32LE(rowsOfA + rowsOfB);
  let lastOfA = 0n;
  for (let row = 0; row < rowsOfA; row++) lastOfA += a.readBigInt64LE(rowCountBytes + row * 8);
  merged.writeBigInt64LE(b.readBigInt64LE(rowCountBytes) - lastOfA, rowCountBytes + rowsOfA * 8);
  return merged;
}

/** Returns where the times end. */
function packTimes(into: Buffer, rows: readonly { timeNs: bigint }[]): number {
  let at = into.writeUInt32LE(rows.length, 0);
  let before = 0n;
  for (const { timeNs } of rows) {
    at = into.writeBigInt64LE(timeNs - before, at);
    before = timeNs;
  }
  return at;
}

function unpackTimes(packed: Buffer): bigint[] {
  let before = 0n;
  return Array.from({ length: packed.readUInt32LE(0) }, (_, i) => {
    before += packed.readBigInt64LE(rowCountBytes + i * 8);
    return before;
  });
}
