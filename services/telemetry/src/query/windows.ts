import { type Numbered, toMicros } from "../store/rows.ts";

/** Rows with sinceNs <= time < untilNs. */
export interface Window {
  sinceNs: bigint;
  untilNs: bigint;
}

/**
 * The newest `limit` rows of a window, oldest first; rows of equal times stay in the source's order. Fewer when these would
 * exceed `maxBytes`, as `bytesOf` counts them, since an answer has to fit in memory.
 * `chunks` are sorted by their latest time, newest first, and read only as long as one can still hold one of these rows.
 */
export async function newestRows<C extends { lastUs: number }, R extends { timeNs: bigint }>(o: {
  window: Window;
  limit: number;
  chunks: AsyncIterable<C>;
  decode(chunk: C): Promise<Numbered<R>[]>;
  /** Filters rows. */
  keeps(row: R): boolean;
  maxBytes: number;
  bytesOf(row: R): number;
}): Promise<Numbered<R>[]> {
  const { sinceNs, untilNs } = o.window;
  let newest: Numbered<R>[] = [];
  /** The newest row that did not fit. No older one may fill the gap. */
  let dropped: Numbered<R> | undefined;
  for await (const chunk of o.chunks) {
    const oldest = newest.length === o.limit ? newest[0] : dropped;
    if (oldest && toMicros(oldest.timeNs) > chunk.lastUs) break;
    const rows = (await o.decode(chunk)).filter(
      (row) =>
        row.timeNs >= sinceNs &&
        row.timeNs < untilNs &&
        o.keeps(row) &&
        (dropped === undefined || bySourceTime(row, dropped) > 0),
    );
    const sorted = [...rows, ...newest].sort(bySourceTime);
    const kept = countFitting(sorted, o);
    dropped = sorted[sorted.length - kept - 1] ?? dropped;
    newest = sorted.slice(sorted.length - kept);
  }
  return newest;
}

/** How many of the last rows are within the limit and the bytes; at least one. */
function countFitting<R>(
  rows: readonly R[],
  { limit, maxBytes, bytesOf }: { limit: number; maxBytes: number; bytesOf(row: R): number },
): number {
  let bytes = 0;
  const tooMany = rows.findLastIndex((row, i) => {
    bytes += bytesOf(row);
    return i < rows.length - 1 && (bytes > maxBytes || rows.length - i > limit);
  });
  return rows.length - 1 - tooMany;
}

function bySourceTime(a: Numbered<{ timeNs: bigint }>, b: Numbered<{ timeNs: bigint }>): number {
  if (a.timeNs === b.timeNs) return a.sequence - b.sequence;
  return a.timeNs < b.timeNs ? -1 : 1;
}
