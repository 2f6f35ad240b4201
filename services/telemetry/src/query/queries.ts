import {
  type ChunkKind,
  type OpenChunk,
  type OpenLogChunk,
  openLogs,
  openMetrics,
  type StoredChunk,
} from "../domain/chunks.ts";
import { type LogRow, type MetricRow, type StreamName, toMicros } from "../domain/rows.ts";
import type { ChunkCursor, Chunks } from "../store/chunks.ts";
import { newestRows, type Page, type RowPosition, type Window } from "./windows.ts";

type ChunkList = Pick<Chunks, "list">;

/** Chunks read from the store at once: few at first, since the newest often have all that is asked for. */
const listed = { first: 2, last: 8 };

/** What one page holds at most, and how many chunks it looks at for it. */
export interface PageSize {
  rows: number;
  bytes: number;
  chunks: number;
}

/** What is asked of a sandbox's rows of one kind. */
interface Query {
  sandboxId: string;
  window: Window;
  /** Only rows before this position. */
  before?: RowPosition | undefined;
  size: PageSize;
  signal: AbortSignal;
}

/** The newest lines of the window. Opens no chunk after the signal aborts, and throws its reason. */
export function queryLogs(store: ChunkList, query: Query & { stream: StreamName | undefined }): Promise<Page<LogRow>> {
  const { stream } = query;
  return newestRows<LogRow, OpenLogChunk>({
    ...limitsOf(query),
    chunks: chunksOf(store, "logs", query),
    open: openLogs,
    keeps: (chunk, index) => stream === undefined || chunk.streamAt(index) === stream,
  });
}

/** The newest samples of the window. Aborts as queryLogs does. */
export function queryMetrics(store: ChunkList, query: Query): Promise<Page<MetricRow>> {
  return newestRows<MetricRow, OpenChunk<MetricRow>>({
    ...limitsOf(query),
    chunks: chunksOf(store, "metrics", query),
    open: openMetrics,
    keeps: () => true,
  });
}

function limitsOf({ window, before, size }: Query) {
  return { window, before, limit: size.rows, maxBytes: size.bytes, maxChunks: size.chunks };
}

async function* chunksOf(
  store: ChunkList,
  kind: ChunkKind,
  o: Query & { stream?: StreamName | undefined },
): AsyncGenerator<StoredChunk> {
  const { sandboxId, window, before, stream, signal } = o;
  const sinceUs = toMicros(window.sinceNs);
  const untilUs = toMicros(before && before.timeNs < window.untilNs ? before.timeNs : window.untilNs);
  let after: ChunkCursor | undefined;
  for (let limit = listed.first; ; limit = Math.min(2 * limit, listed.last)) {
    signal.throwIfAborted();
    const chunks = await store.list({ sandboxId, kind, sinceUs, untilUs, stream, after, limit });
    for (const chunk of chunks) {
      // The last chunk was decompressed in the thread pool, so an abort may have come in meanwhile.
      signal.throwIfAborted();
      yield chunk;
    }
    after = chunks.at(-1);
    if (chunks.length < limit) return;
  }
}
