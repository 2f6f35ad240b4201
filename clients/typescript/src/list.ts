import type { CallOptions } from "./http.ts";

/** One page of a list. */
export interface Page<T> {
  readonly items: T[];
  /** For the next page; null on the last. */
  readonly nextCursor: string | null;
}

/** What every list takes. */
export interface ListOptions extends CallOptions {
  /** How many items a page has; 100 by default. */
  limit?: number | undefined;
}

type ReadPage<T> = (o: { cursor?: string | undefined; signal?: AbortSignal | undefined }) => Promise<Page<T>>;

/** Rows that are read as they are needed: `for await` goes through them, `await` gives all of them as an array. */
export class Sequence<T> implements AsyncIterable<T>, PromiseLike<T[]> {
  readonly #read: () => AsyncIterable<T>;

  constructor(read: () => AsyncIterable<T>) {
    this.#read = read;
  }

  [Symbol.asyncIterator](): AsyncIterator<T> {
    return this.#read()[Symbol.asyncIterator]();
  }

  // biome-ignore lint/suspicious/noThenProperty: `await` gives all of it
  then<A = T[], B = never>(
    resolve?: ((all: T[]) => A | PromiseLike<A>) | null,
    reject?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return collect(this.#read()).then(resolve, reject);
  }
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

/** A list of the API, read page by page; `page` gives single pages. */
export class List<T> extends Sequence<T> {
  readonly #readPage: ReadPage<T>;

  constructor(readPage: ReadPage<T>) {
    super(async function* () {
      for await (const { items } of pagesOf(readPage)) yield* items;
    });
    this.#readPage = readPage;
  }

  /** Reads one page: the first, or the one that a cursor is for. */
  page(cursor?: string, { signal }: CallOptions = {}): Promise<Page<T>> {
    return this.#readPage({ cursor, signal });
  }

  pages(): AsyncGenerator<Page<T>, void> {
    return pagesOf(this.#readPage);
  }
}

async function* pagesOf<T>(readPage: ReadPage<T>): AsyncGenerator<Page<T>, void> {
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const page: Page<T> = await readPage(cursor === undefined ? {} : { cursor });
    yield page;
    cursor = page.nextCursor;
  }
}
