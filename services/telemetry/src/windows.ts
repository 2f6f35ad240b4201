import { type Numbered, toMicros } from "./rows.ts";

/** Rows with sinceNs <= time < untilNs. */
export interface Window {
  sinceNs: bigint;
  untilNs: bigint;
}

/**
 * The newest `limit` rows of a window, oldest first; equal times keep the source's order.
 * `chunks` come by their greatest time, newest first, and no more of them are taken than can still hold one of these rows.
 */
export async function newestRows<C extends { lastUs: number }, R extends { timeNs: bigint }>(o: {
  window: Window;
  limit: number;
  chunks: AsyncIterable<C>;
  open(chunk: C): Promise<Numbered<R>[]>;
  keeps(row: R): boolean;
}): Promise<Numbered<R>[]> {
  const { sinceNs, untilNs } = o.window;
  let newest: Numbered<R>[] = [];
  for await (const chunk of o.chunks) {
    const oldest = newest[0];
    if (oldest && newest.length === o.limit && toMicros(oldest.timeNs) > chunk.lastUs) break;
    const rows = (await o.open(chunk)).filter((row) => row.timeNs >= sinceNs && row.timeNs < untilNs && o.keeps(row));
    newest = [...rows, ...newest].sort(bySourceTime).slice(-o.limit);
  }
  return newest;
}

function bySourceTime(a: Numbered<{ timeNs: bigint }>, b: Numbered<{ timeNs: bigint }>): number {
  if (a.timeNs === b.timeNs) return a.sequence - b.sequence;
  return a.timeNs < b.timeNs ? -1 : 1;
}
