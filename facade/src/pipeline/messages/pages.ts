/**
 * How many rows are asked of a service at once. This process does nothing else while it decodes and maps them, so more
 * would hold up other requests.
 */
const rowsAtOnce = 100;

interface Page<R> {
  rows: R[];
  /** Empty on the last page. */
  nextCursor: string;
}

/**
 * Reads a page of up to `limit` rows (Infinity: the rest of the list) in chunks, between which other requests are
 * answered.
 */
export async function* readInChunks<P extends Page<unknown>>(
  { limit, cursor }: { limit: number; cursor: string },
  read: (page: { limit: number; cursor: string }) => Promise<P>,
): AsyncGenerator<P> {
  let left = limit;
  let next = cursor;
  do {
    const chunk = await read({ limit: Math.min(left, rowsAtOnce), cursor: next });
    yield chunk;
    left -= chunk.rows.length;
    next = chunk.nextCursor;
  } while (left > 0 && next !== "");
}

/** Reads a page in chunks, and returns it whole. */
export async function collectPage<R>(
  page: { limit: number; cursor: string },
  read: (page: { limit: number; cursor: string }) => Promise<Page<R>>,
): Promise<Page<R>> {
  const whole: Page<R> = { rows: [], nextCursor: "" };
  for await (const { rows, nextCursor } of readInChunks(page, read)) {
    whole.rows.push(...rows);
    whole.nextCursor = nextCursor;
  }
  return whole;
}
