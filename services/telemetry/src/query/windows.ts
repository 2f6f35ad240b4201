import type { OpenChunk, StoredChunk } from "../domain/chunks.ts";
import { type Numbered, toMicros } from "../domain/rows.ts";

/** Rows with sinceNs <= time < untilNs. */
export interface Window {
  sinceNs: bigint;
  untilNs: bigint;
}

/** A row's position in its sandbox: by time, rows of equal times in the source's order. */
export interface RowPosition {
  timeNs: bigint;
  sequence: number;
}

/** Rows of a window, oldest first. */
export interface Page<R> {
  rows: Numbered<R>[];
  /** What they count for, as `rowBytes` and their text. */
  bytes: number;
  /** The window's other rows are before this position; undefined when none is left. */
  before: RowPosition | undefined;
}

/** What a row counts for besides its text, as it is encoded: its time, its stream and their tags. */
export const rowBytes = 24;

/** A row that may be on the page. */
interface Candidate<R> extends RowPosition {
  bytes: number;
  chunk: OpenChunk<R>;
  index: number;
}

/**
 * The newest rows of a window before a position: up to `limit`, fewer when they would come to more than `maxBytes`, at
 * least one if there is one, unless `maxChunks` were opened and hold none. `chunks` are sorted by their latest time,
 * newest first, and opened only as long as one can hold a row of the page. Rows are decoded once it is known that they
 * are on it.
 */
export async function newestRows<R, O extends OpenChunk<R>>(o: {
  window: Window;
  before?: RowPosition | undefined;
  limit: number;
  maxBytes: number;
  maxChunks: number;
  chunks: AsyncIterable<StoredChunk>;
  open(chunk: StoredChunk): Promise<O>;
  /** Filters rows. */
  keeps(chunk: O, index: number): boolean;
}): Promise<Page<R>> {
  const { limit, maxBytes, window } = o;
  const untilUs = toMicros(o.before?.timeNs ?? window.untilNs);
  /** The page's rows, newest first. */
  const taken: Candidate<R>[] = [];
  let bytes = 0;
  /** Rows that one of a later chunk may still come after, oldest first. */
  let waiting: Candidate<R>[] = [];
  let opened = 0;

  /** Takes the rows that are later than `us`. False once the page is full. */
  const takeAfter = (us: number): boolean => {
    for (let row = waiting.at(-1); row && toMicros(row.timeNs) > us; row = waiting.at(-1)) {
      if (taken.length > 0 && (taken.length >= limit || bytes + row.bytes > maxBytes)) return false;
      taken.push(row);
      bytes += row.bytes;
      waiting.pop();
    }
    return taken.length < limit;
  };
  const endAt = (before: RowPosition | undefined): Page<R> => ({
    rows: taken.reverse().map(({ chunk, index, sequence }) => ({ ...chunk.rowAt(index), sequence })),
    bytes,
    before,
  });

  for await (const chunk of o.chunks) {
    if (!takeAfter(chunk.lastUs)) return endAt(taken.at(-1));
    // Ends only where that leaves less to do, for there may be any number of chunks of one time.
    if (opened >= o.maxChunks && chunk.lastUs + 1 < untilUs) {
      return endAt({ timeNs: BigInt(chunk.lastUs + 1) * 1000n, sequence: 0 });
    }
    opened += 1;
    const open = await o.open(chunk);
    // One more than the page takes, which shows that there are more.
    const rows = candidatesOf<R, O>(open, chunk.firstSequence, o).slice(-(limit + 1));
    waiting = merge(waiting, rows).slice(-(limit + 1));
  }
  const isFull = !takeAfter(Number.NEGATIVE_INFINITY);
  return endAt(isFull && waiting.length > 0 ? taken.at(-1) : undefined);
}

/** The chunk's rows that are asked for, oldest first. */
function candidatesOf<R, O extends OpenChunk<R>>(
  chunk: O,
  firstSequence: number,
  o: { window: Window; before?: RowPosition | undefined; keeps(chunk: O, index: number): boolean },
): Candidate<R>[] {
  const { window, before } = o;
  const rows: Candidate<R>[] = [];
  let isSorted = true;
  chunk.timesNs.forEach((timeNs, index) => {
    if (timeNs < window.sinceNs || timeNs >= window.untilNs) return;
    const position = { timeNs, sequence: firstSequence + index };
    if ((before && compare(position, before) >= 0) || !o.keeps(chunk, index)) return;
    const last = rows.at(-1);
    if (last && last.timeNs > timeNs) isSorted = false;
    rows.push({ ...position, bytes: rowBytes + chunk.textBytesAt(index), chunk, index });
  });
  return isSorted ? rows : rows.sort(compare);
}

/** Merges two sorted lists. */
function merge<P extends RowPosition>(a: readonly P[], b: readonly P[]): P[] {
  const [lastOfA, firstOfB] = [a.at(-1), b[0]];
  if (!lastOfA || !firstOfB || compare(lastOfA, firstOfB) < 0) return [...a, ...b];
  const [lastOfB, firstOfA] = [b.at(-1), a[0]];
  if (lastOfB && firstOfA && compare(lastOfB, firstOfA) < 0) return [...b, ...a];
  // V8's sort merges two sorted runs in one pass.
  return [...a, ...b].sort(compare);
}

function compare(a: RowPosition, b: RowPosition): number {
  if (a.timeNs === b.timeNs) return a.sequence - b.sequence;
  return a.timeNs < b.timeNs ? -1 : 1;
}
