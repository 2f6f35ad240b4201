import type { StoredChunk } from "../domain/chunks.ts";
import type { Chunks } from "./chunks.ts";
import type { Collections } from "./documents.mongo.ts";

const storedFields = { _id: 0, firstSequence: 1, lastSequence: 1, lastUs: 1, textBytes: 1, body: 1 } as const;

export function createChunks({ chunks }: Pick<Collections, "chunks">): Chunks {
  return {
    async list({ sandboxId, kind, sinceUs, untilUs, stream, after, limit }) {
      return chunks
        .find({
          sandboxId,
          kind,
          lastUs: { $gte: sinceUs, ...(after && { $lte: after.lastUs }) },
          firstUs: { $lte: untilUs },
          ...(after && { $or: [{ lastUs: { $lt: after.lastUs } }, { firstSequence: { $lt: after.firstSequence } }] }),
          ...(stream && { [`${stream}Rows`]: { $gt: 0 } }),
        })
        .project<StoredChunk>(storedFields)
        .sort({ lastUs: -1, firstSequence: -1 })
        .limit(limit)
        .toArray();
    },

    async listAfter({ sandboxId, kind, sequence, limit }) {
      return chunks
        .find({ sandboxId, kind, lastSequence: { $gt: sequence } })
        .project<StoredChunk>(storedFields)
        .sort({ lastSequence: 1 })
        .limit(limit)
        .toArray();
    },
  };
}
