import { promisify } from "node:util";
import { zstdCompress, zstdCompressSync, zstdDecompress, zstdDecompressSync } from "node:zlib";
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

/** Up to these sizes, a new batch is merged into the newest chunk: a line a second must not make a chunk a second. */
const maxMerged = { rows: 1_000, textBytes: 64 * 1024 };

/** What a line takes besides its text, as packed below: time, stream and length. Empty lines fill a disk too. */
const lineBytes = 8 + 1 + 4;

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

export async function decodeLogs(body: Uint8Array): Promise<LogRow[]> {
  return unpackLogs(await decompress(body));
}

export async function decodeMetrics(body: Uint8Array): Promise<MetricRow[]> {
  return unpackMetrics(await decompress(body));
}

/** Whether `next` may be merged into `last`, the chunk before it. */
export function fitsInto(last: Pick<Chunk, "rows" | "textBytes">, next: Chunk): boolean {
  return last.rows + next.rows <= maxMerged.rows && last.textBytes + next.textBytes <= maxMerged.textBytes;
}

/** Merges `next` into `last`. Synchronous: both are small (see fitsInto). */
export function mergeChunks(kind: ChunkKind, last: Uint8Array, next: Uint8Array): Chunk {
  const a = zstdDecompressSync(last);
  const b = zstdDecompressSync(next);
  if (kind === "logs") {
    const rows = [...unpackLogs(a), ...unpackLogs(b)];
    return { ...summarizeLogs(rows), body: compressSync(packLogs(rows)) };
  }
  const rows = [...unpackMetrics(a), ...unpackMetrics(b)];
  return { ...summarizeMetrics(rows), body: compressSync(packMetrics(rows)) };
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
function timesOf(rows: readonly { timeNs: bigint }[]): { firstUs: number; lastUs: number } {
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
  const header = Buffer.allocUnsafe(4 + rows.length * lineBytes);
  let at = packTimes(header, rows);
  for (const row of rows) at = header.writeUInt8(row.stream === "stdout" ? 1 : 2, at);
  for (const line of lines) at = header.writeUInt32LE(line.length, at);
  return Buffer.concat([header, ...lines]);
}

function unpackLogs(packed: Buffer): LogRow[] {
  const times = unpackTimes(packed);
  const streams = 4 + times.length * 8;
  const lengths = streams + times.length;
  let at = lengths + times.length * 4;
  return times.map((timeNs, i) => {
    const stream: StreamName = packed.readUInt8(streams + i) === 1 ? "stdout" : "stderr";
    const end = at + packed.readUInt32LE(lengths + i * 4);
    const log = packed.toString("utf8", at, end);
    at = end;
    return { timeNs, stream, log };
  });
}

function packMetrics(rows: readonly MetricRow[]): Buffer {
  const packed = Buffer.allocUnsafe(4 + rows.length * 24);
  let at = packTimes(packed, rows);
  for (const row of rows) at = packed.writeDoubleLE(row.cpuSeconds, at);
  for (const row of rows) at = packed.writeDoubleLE(row.memoryBytes, at);
  return packed;
}

function unpackMetrics(packed: Buffer): MetricRow[] {
  const times = unpackTimes(packed);
  const cpu = 4 + times.length * 8;
  const memory = cpu + times.length * 8;
  return times.map((timeNs, i) => ({
    timeNs,
    cpuSeconds: packed.readDoubleLE(cpu + i * 8),
    memoryBytes: packed.readDoubleLE(memory + i * 8),
  }));
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
    before += packed.readBigInt64LE(4 + i * 8);
    return before;
  });
}

/** What a purge removes in one transaction at most. */
export interface PurgeLimits {
  sandboxes: number;
  chunks: number;
  /** Of lines, before they were compressed. */
  textBytes: number;
}

/** Of small chunks many, of chunks with a mebibyte of lines few, so that no transaction holds up other writes for long. */
export const purgeLimits: PurgeLimits = { sandboxes: 100, chunks: 500, textBytes: 32 * 1024 * 1024 };

/** The first of these chunks, up to so many bytes of lines; at least one, if there is any. */
export function takePurgeBatch<C extends { textBytes: number }>(
  chunks: readonly C[],
  maxTextBytes: number,
): readonly C[] {
  let textBytes = 0;
  const end = chunks.findIndex((chunk) => {
    textBytes += chunk.textBytes;
    return textBytes > maxTextBytes;
  });
  return end === -1 ? chunks : chunks.slice(0, Math.max(1, end));
}
