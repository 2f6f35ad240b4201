import { invalid } from "./domain-error.ts";

/** The position of a row in a list that is sorted by creation time, the newest first, and then by id. */
export interface Cursor {
  createdAt: Date;
  id: string;
}

/** Returns the opaque text that a client sends to continue after this row. */
export function encodeCursor(cursor: Cursor): string {
  return Buffer.from(JSON.stringify([cursor.createdAt.getTime(), cursor.id])).toString("base64url");
}

/**
 * Parses a cursor. An empty text is the start of the list, undefined. Throws VALIDATION_ERROR on query.cursor for other
 * texts.
 */
export function decodeCursor(text: string): Cursor | undefined {
  if (text === "") return undefined;
  const cursor = parse(text);
  if (!cursor || encodeCursor(cursor) !== text) throw invalid("query.cursor", "is not a cursor of this list");
  return cursor;
}

/**
 * Reads a page of a store's list: the rows that come after `after` in the list's order, 100 of them unless another
 * limit is given. The cursor is empty on the last page. Throws what `decodeCursor` throws.
 */
export function readPage<R extends Cursor>(
  page: { limit: number; cursor: string } | undefined,
  read: (limit: number, after: Cursor | undefined) => Promise<readonly R[]>,
): Promise<{ rows: R[]; nextCursor: string }> {
  return readPageBy((row) => row, page, read);
}

/** Reads a page of rows whose position is in fields of other names. */
export async function readPageBy<R>(
  cursorOf: (row: R) => Cursor,
  page: { limit: number; cursor: string } | undefined,
  read: (limit: number, after: Cursor | undefined) => Promise<readonly R[]>,
): Promise<{ rows: R[]; nextCursor: string }> {
  const limit = page?.limit || 100;
  // One row more shows whether there is another page.
  const found = await read(limit + 1, decodeCursor(page?.cursor ?? ""));
  const rows = found.slice(0, limit);
  const last = rows.at(-1);
  return { rows, nextCursor: last !== undefined && found.length > limit ? encodeCursor(cursorOf(last)) : "" };
}

function parse(text: string): Cursor | undefined {
  try {
    const value: unknown = JSON.parse(Buffer.from(text, "base64url").toString());
    if (!Array.isArray(value) || value.length !== 2) return undefined;
    const [createdAt, id]: unknown[] = value;
    if (typeof createdAt !== "number" || typeof id !== "string") return undefined;
    return { createdAt: new Date(createdAt), id };
  } catch {
    return undefined;
  }
}
