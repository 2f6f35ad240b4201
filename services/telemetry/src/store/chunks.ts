import type { ChunkKind, StoredChunk } from "../domain/chunks.ts";
import type { StreamName } from "../domain/rows.ts";

/** The last chunk of a page, after which the next page of a list from the newest to the oldest begins. */
export interface ChunkCursor {
  lastUs: number;
  firstSequence: number;
}

export interface ChunkQuery {
  sandboxId: string;
  kind: ChunkKind;
  /** Inclusive, as `untilUs`. */
  sinceUs: number;
  untilUs: number;
  /** Only chunks with lines of this stream. */
  stream?: StreamName | undefined;
  after?: ChunkCursor | undefined;
  limit: number;
}

export interface TailQuery {
  sandboxId: string;
  kind: ChunkKind;
  sequence: number;
  limit: number;
}

/** The rows of sandboxes, packed into chunks. */
export interface Chunks {
  /** Chunks that may have rows of the stream between two times (in microseconds), newest first. */
  list(query: ChunkQuery): Promise<StoredChunk[]>;
  /** Chunks with rows above a sequence, oldest first. */
  listAfter(query: TailQuery): Promise<StoredChunk[]>;
}
