/**
 * How many rows are asked of a service at once. This process does nothing else while it decodes and maps them, so more would
 * hold up other requests.
 */
const rowsAtOnce = 100;

interface Page<R> {
  rows: R[];
  /** Empty: there are no more. */
  nextCursor: string;
}

/** Reads a page of up to `limit` rows, or with Infinity the rest of a list, in parts between which other requests are answered. */
export async function* readParts<P extends Page<unknown>>(
  { limit, cursor }: { limit: number; cursor: string },
  read: (page: { limit: number; cursor: string }) => Promise<P>,
): AsyncGenerator<P> {
  let left = limit;
  let next = cursor;
  do {
    const part = await read({ limit: Math.min(left, rowsAtOnce), cursor: next });
    yield part;
    left -= part.rows.length;
    next = part.nextCursor;
  } while (left > 0 && next !== "");
}

/** The same as one page. */
export async function collectPage<R>(
  page: { limit: number; cursor: string },
  read: (page: { limit: number; cursor: string }) => Promise<Page<R>>,
): Promise<Page<R>> {
  const whole: Page<R> = { rows: [], nextCursor: "" };
  for await (const { rows, nextCursor } of readParts(page, read)) {
    whole.rows.push(...rows);
    whole.nextCursor = nextCursor;
  }
  return whole;
}
