import { mebibyte } from "@sandgate/kit/base/sizes";
import { type LogRow, type MetricRow, maxLineBytes, type Numbered, type StreamName } from "../domain/rows.ts";
import type { Chunks } from "../store/chunks.ts";
import { formatPageToken, parsePageToken, type Remainder, type Remainders } from "./page-token.ts";
import { type PageSize, queryLogs, queryMetrics } from "./queries.ts";
import { type Page, rowBytes, type Window } from "./windows.ts";

/**
 * The most that the lines of one read may come to when encoded: 500 lines of the maximum length, so that the default
 * limit is always met, and together with 10,000 samples less than the 32 MiB that our clients read in one answer.
 * Clients are told that rows are left out only above 31 MiB of lines.
 */
const maxBytes = 31.5 * mebibyte;
/** With less left than a line may have, a read is at its end. */
const longestRowBytes = maxLineBytes + rowBytes;
/** Rows of a page at most: whoever makes or reads one does nothing else meanwhile. */
const pageRows = 1_000;
/** Chunks that a page looks at: rows of one stream may be few in each. */
const pageChunks = 64;

export interface Read {
  sandboxId: string;
  window: Window;
  /** Of each kind. */
  limit: number;
  /** Undefined: both. */
  stream: StreamName | undefined;
  include: { logs: boolean; metrics: boolean };
  /** Bytes of lines on a page; 0: everything is on one. */
  pageBytes: number;
  /** The page before's; empty: this is the first. */
  pageToken: string;
  signal: AbortSignal;
}

/** The rows of a page, oldest first. */
export interface QueryPage {
  logs: Numbered<LogRow>[];
  metrics: Numbered<MetricRow>[];
  /** Empty: no older rows are left. */
  nextPageToken: string;
}

/**
 * A page of the newest rows of a window; pages go from the newest to the oldest. Fewer rows than the limit when they
 * are too long for one read. Throws VALIDATION_ERROR for a malformed token.
 */
export async function queryPage(store: Pick<Chunks, "list">, read: Read): Promise<QueryPage> {
  const { sandboxId, window, stream, signal } = read;
  const remainders = read.pageToken === "" ? beginningOf(read) : parsePageToken(read.pageToken);
  const queryOf = (remainder: Remainder) => ({
    sandboxId,
    window,
    before: remainder.before,
    size: sizeOf(remainder, read.pageBytes),
    signal,
  });
  const [logs, metrics] = await Promise.all([
    remainders.logs ? queryLogs(store, { ...queryOf(remainders.logs), stream }) : undefined,
    remainders.metrics ? queryMetrics(store, queryOf(remainders.metrics)) : undefined,
  ]);
  const left: Remainders = {
    logs: remainderAfter(remainders.logs, logs),
    metrics: remainderAfter(remainders.metrics, metrics),
  };
  return {
    logs: logs?.rows ?? [],
    metrics: metrics?.rows ?? [],
    nextPageToken: read.pageBytes > 0 ? formatPageToken(left) : "",
  };
}

function beginningOf({ limit, include }: Read): Remainders {
  const remainder = { before: undefined, rows: limit, bytes: maxBytes };
  return { logs: include.logs ? remainder : undefined, metrics: include.metrics ? remainder : undefined };
}

function sizeOf({ rows, bytes }: Remainder, pageBytes: number): PageSize {
  if (pageBytes === 0) return { rows, bytes, chunks: Number.POSITIVE_INFINITY };
  return { rows: Math.min(rows, pageRows), bytes: Math.min(bytes, pageBytes), chunks: pageChunks };
}

function remainderAfter(remainder: Remainder | undefined, page: Page<unknown> | undefined): Remainder | undefined {
  if (!remainder || !page?.before) return undefined;
  const rows = remainder.rows - page.rows.length;
  const bytes = remainder.bytes - page.bytes;
  return rows > 0 && bytes >= longestRowBytes ? { before: page.before, rows, bytes } : undefined;
}
