import { type ChunkKind, decodeLogs, decodeMetrics } from "../store/chunks.ts";
import { type LogRow, type MetricRow, type Numbered, type StreamName, toMicros } from "../store/rows.ts";
import type { ChunkCursor, StoredChunk, TelemetryStore } from "../store/store.ts";
import { newestRows, type Window } from "./windows.ts";

type ChunkList = Pick<TelemetryStore, "listChunks">;

/** Chunks read from the store at once. */
const pageSize = 8;
/**
 * The most that the lines of one answer may come to when encoded: 500 lines of the maximum length, so that the default limit
 * is always met, and together with 10,000 samples less than the 32 MiB that our clients read.
 */
const maxLogBytes = 31.5 * 1024 * 1024;
/** The encoded size of a row without its text: its time, its stream and their tags. */
const rowBytes = 24;

/**
 * The newest `limit` lines of the window, oldest first; fewer when they are too long for one answer. Decodes no chunk after the
 * signal aborts, and throws its reason.
 */
export function queryLogs(
  store: ChunkList,
  o: { sandboxId: string; window: Window; limit: number; stream: StreamName | undefined; signal: AbortSignal },
): Promise<Numbered<LogRow>[]> {
  return newestRows<StoredChunk, LogRow>({
    window: o.window,
    limit: o.limit,
    chunks: chunksOf(store, "logs", o),
    decode: decodeLogChunk,
    keeps: (row) => o.stream === undefined || row.stream === o.stream,
    maxBytes: maxLogBytes,
    bytesOf: ({ log }) => rowBytes + Buffer.byteLength(log),
  });
}

/** The newest `limit` samples of the window, oldest first. Aborts as queryLogs does. */
export function queryMetrics(
  store: ChunkList,
  o: { sandboxId: string; window: Window; limit: number; signal: AbortSignal },
): Promise<Numbered<MetricRow>[]> {
  return newestRows<StoredChunk, MetricRow>({
    window: o.window,
    limit: o.limit,
    chunks: chunksOf(store, "metrics", o),
    decode: decodeMetricChunk,
    keeps: () => true,
    maxBytes: Number.POSITIVE_INFINITY,
    bytesOf: () => rowBytes,
  });
}

export async function decodeLogChunk(chunk: StoredChunk): Promise<Numbered<LogRow>[]> {
  return number(chunk, await decodeLogs(chunk.body));
}

export async function decodeMetricChunk(chunk: StoredChunk): Promise<Numbered<MetricRow>[]> {
  return number(chunk, await decodeMetrics(chunk.body));
}

function number<R>(chunk: StoredChunk, rows: readonly R[]): Numbered<R>[] {
  return rows.map((row, i) => ({ ...row, sequence: chunk.firstSequence + i }));
}

async function* chunksOf(
  store: ChunkList,
  kind: ChunkKind,
  o: { sandboxId: string; window: Window; stream?: StreamName | undefined; signal: AbortSignal },
): AsyncGenerator<StoredChunk> {
  const { sandboxId, window, stream, signal } = o;
  const sinceUs = toMicros(window.sinceNs);
  const untilUs = toMicros(window.untilNs);
  for (let after: ChunkCursor | undefined; ; ) {
    signal.throwIfAborted();
    const chunks = await store.listChunks({ sandboxId, kind, sinceUs, untilUs, stream, after, limit: pageSize });
    for (const chunk of chunks) {
      // The last chunk was decompressed in the thread pool, so an abort may have come in meanwhile.
      signal.throwIfAborted();
      yield chunk;
    }
    after = chunks.at(-1);
    if (chunks.length < pageSize) return;
  }
}
