import type { MongoDatabase } from "@sandgate/kit/storage/mongo";
import { createPurges } from "@sandgate/kit/workspaces/mongo-guards";
import { decidePurgeBatch } from "../domain/removals.ts";
import type { Collections } from "./documents.mongo.ts";
import type { Purges } from "./purges.ts";
import { addLogBytes } from "./retention.mongo.ts";

export function createTelemetryPurges(collections: Collections, write: MongoDatabase["write"]): Purges {
  const { guards, sandboxes, chunks } = collections;
  return {
    ...createPurges(guards, write),
    purgeBatch: (workspaceId, limits) =>
      write(async (tx) => {
        const { session } = tx;
        const known = await sandboxes
          .find({ workspaceId }, { session, projection: { _id: 1 } })
          .limit(limits.sandboxes)
          .toArray();
        const sandboxIds = known.map(({ _id }) => _id);
        const found = await chunks
          .find({ sandboxId: { $in: sandboxIds } }, { session, projection: { textBytes: 1 } })
          .limit(limits.chunks)
          .toArray();
        const batch = decidePurgeBatch({ sandboxIds, chunks: found }, limits);
        // What their sandboxes have counted stays: these go with the last of their chunks.
        if (batch.chunks.length > 0) {
          await chunks.deleteMany({ _id: { $in: batch.chunks.map(({ _id }) => _id) } }, { session });
          await addLogBytes(collections, tx, workspaceId, -batch.textBytes);
        }
        if (batch.sandboxIds.length > 0) await sandboxes.deleteMany({ _id: { $in: batch.sandboxIds } }, { session });
        return batch.more;
      }),
  };
}
