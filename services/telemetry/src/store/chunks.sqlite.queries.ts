import type { Queries, QueryConnection } from "@sandgate/kit/storage/sqlite";
import type { StoredChunk } from "../domain/chunks.ts";
import type { ChunkQuery, TailQuery } from "./chunks.ts";

const chunkColumns =
  "first_sequence AS firstSequence, last_sequence AS lastSequence, last_us AS lastUs, text_bytes AS textBytes, body";

export const chunkQueries = {
  listChunks(db: QueryConnection, { sandboxId, kind, sinceUs, untilUs, stream, after, limit }: ChunkQuery) {
    // Only the index is read of what is later than the window or has nothing of the stream.
    return db.all<StoredChunk>(
      `SELECT ${chunkColumns} FROM chunks INDEXED BY chunks_by_window
       WHERE sandbox_id = ? AND kind = ? AND last_us >= ? AND first_us <= ?
         AND (last_us, first_sequence) < (?, ?) ${stream ? `AND ${stream}_rows > 0` : ""}
       ORDER BY last_us DESC, first_sequence DESC LIMIT ?`,
      sandboxId,
      kind,
      sinceUs,
      untilUs,
      after?.lastUs ?? Number.MAX_SAFE_INTEGER,
      after?.firstSequence ?? Number.MAX_SAFE_INTEGER,
      limit,
    );
  },

  listChunksAfter(db: QueryConnection, { sandboxId, kind, sequence, limit }: TailQuery) {
    return db.all<StoredChunk>(
      `SELECT ${chunkColumns} FROM chunks WHERE sandbox_id = ? AND kind = ? AND last_sequence > ?
       ORDER BY last_sequence LIMIT ?`,
      sandboxId,
      kind,
      sequence,
      limit,
    );
  },
} satisfies Queries;
