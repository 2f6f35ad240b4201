import type { MongoDatabase, MongoTransaction, ObjectId } from "@sandgate/kit/storage/mongo";
import {
  addRemovals,
  chooseOldest,
  decidePurgeBatch,
  limitsAfter,
  limitsOfStep,
  limitsOver,
  maxRemovedChunks,
  nothingRemoved,
  type Removal,
  type RemovalLimits,
} from "../domain/removals.ts";
import type { ChunkDocument, Collections } from "./documents.mongo.ts";
import type { Retention } from "./retention.ts";

export function createRetention(collections: Collections, write: MongoDatabase["write"]): Retention {
  const { guards, sandboxes, chunks } = collections;
  return {
    sweepExpired: (before) =>
      write(async (tx) => {
        const { session } = tx;
        if ((await removeExpired(collections, tx, before)) === maxRemovedChunks) return true;
        const ended = await sandboxes
          .find({ chunks: 0, updatedAt: { $lt: before } }, { session, projection: { _id: 1 } })
          .limit(maxRemovedChunks)
          .toArray();
        if (ended.length > 0) await sandboxes.deleteMany({ _id: { $in: ended.map(({ _id }) => _id) } }, { session });
        return ended.length === maxRemovedChunks;
      }),

    async trimTotal(totalBytes) {
      // Asked first without a transaction, which is only needed when there is something to do.
      if ((await totalLogBytes(collections)) <= totalBytes) return { lines: 0, more: false };
      return write(async (tx) => {
        const over = (await totalLogBytes(collections, tx)) - totalBytes;
        const largest = await guards.findOne(
          { logBytes: { $gt: 0 } },
          { session: tx.session, projection: { _id: 1 }, sort: { logBytes: -1 } },
        );
        if (over <= 0 || !largest) return { lines: 0, more: false };
        const removed = await trimWorkspace(collections, tx, largest._id, limitsOver(over));
        return { lines: removed.lines, more: removed.chunks > 0 && removed.bytes < over };
      });
    },

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

/** Of all workspaces, inside of a transaction or not. */
async function totalLogBytes({ guards }: Collections, tx?: MongoTransaction): Promise<number> {
  const [all] = await guards
    .aggregate<{ logBytes: number }>(
      [{ $match: { logBytes: { $gt: 0 } } }, { $group: { _id: null, logBytes: { $sum: "$logBytes" } } }],
      tx && { session: tx.session },
    )
    .toArray();
  return all?.logBytes ?? 0;
}

/** Counts what was added to or removed from the log chunks of a workspace. Returns what it has. */
export async function addLogBytes(
  { guards }: Collections,
  { session }: MongoTransaction,
  workspaceId: string,
  bytes: number,
): Promise<number> {
  const guard = await guards.findOneAndUpdate(
    { _id: workspaceId },
    { $inc: { logBytes: bytes } },
    { returnDocument: "after", session },
  );
  return guard?.logBytes ?? 0;
}

/** Removes a sandbox's oldest log chunks. What its workspace has counted stays. */
export async function removeOldestLogs(
  { chunks, sandboxes }: Collections,
  { session }: MongoTransaction,
  sandboxId: string,
  limits: RemovalLimits,
): Promise<Removal> {
  if (limits.bytes <= 0) return nothingRemoved;
  // Few at a time, since the server reads their bodies too.
  const found = chunks
    .find({ sandboxId, kind: "logs" }, { session, projection: { body: 0 }, batchSize: maxRemovedChunks })
    .sort({ lastSequence: 1 })
    .limit(limits.chunks + 1);
  const oldest: (Omit<ChunkDocument, "body"> & { _id: ObjectId })[] = [];
  let foundBytes = 0;
  for await (const chunk of found) {
    oldest.push(chunk);
    // With one more than is removed: it is the oldest afterwards.
    if (foundBytes >= limits.bytes) break;
    foundBytes += chunk.textBytes;
  }
  const { chosen, removal } = chooseOldest(sandboxId, oldest, limits);
  if (chosen.length === 0) return nothingRemoved;
  await chunks.deleteMany({ _id: { $in: chosen.map(({ _id }) => _id) } }, { session });
  const left = oldest[chosen.length];
  await sandboxes.updateOne(
    { _id: sandboxId },
    {
      $inc: { textBytes: -removal.bytes, chunks: -removal.chunks },
      ...(left ? { $set: { oldestUs: left.firstUs } } : { $unset: { oldestUs: "" } }),
    },
    { session },
  );
  return removal;
}

/** Removes log chunks of a workspace: first those of the sandboxes that ended first, then the oldest. */
export async function trimWorkspace(
  collections: Collections,
  tx: MongoTransaction,
  workspaceId: string,
  limits: RemovalLimits,
): Promise<Removal> {
  let removed = nothingRemoved;
  for (let left = limitsAfter(limits, removed); left; left = limitsAfter(limits, removed)) {
    const next = await removeNext(collections, tx, workspaceId, left);
    if (next.chunks === 0) break;
    removed = addRemovals(removed, next);
  }
  if (removed.chunks > 0) await addLogBytes(collections, tx, workspaceId, -removed.bytes);
  return removed;
}

async function removeNext(
  collections: Collections,
  tx: MongoTransaction,
  workspaceId: string,
  limits: RemovalLimits,
): Promise<Removal> {
  const { session } = tx;
  const candidates = { workspaceId, textBytes: { $gt: 0 } };
  // One more of each than may only have the chunk to keep.
  const options = { session, projection: { _id: 1 }, limit: (limits.keep?.size ?? 0) + 1 } as const;
  const { sandboxes } = collections;
  const ended = sandboxes.find({ ...candidates, ended: true }, { ...options, sort: { updatedAt: 1 } });
  for await (const { _id } of ended) {
    const removed = await removeOldestLogs(collections, tx, _id, limits);
    if (removed.chunks > 0) return removed;
  }
  const live = sandboxes.find({ ...candidates, ended: { $ne: true } }, { ...options, sort: { oldestUs: 1 } });
  for await (const { _id } of live) {
    const removed = await removeOldestLogs(collections, tx, _id, limitsOfStep(limits));
    if (removed.chunks > 0) return removed;
  }
  return nothingRemoved;
}

/** Removes some of the chunks that are older than `before`. Returns how many. */
async function removeExpired(collections: Collections, tx: MongoTransaction, before: Date): Promise<number> {
  const { chunks, sandboxes } = collections;
  const { session } = tx;
  const found = await chunks
    .find({ lastUs: { $lt: before.getTime() * 1000 } }, { session, projection: { sandboxId: 1, textBytes: 1 } })
    .limit(maxRemovedChunks)
    .toArray();
  if (found.length === 0) return 0;
  await chunks.deleteMany({ _id: { $in: found.map(({ _id }) => _id) } }, { session });
  for (const [sandboxId, removed] of Map.groupBy(found, (chunk) => chunk.sandboxId)) {
    const textBytes = removed.reduce((sum, chunk) => sum + chunk.textBytes, 0);
    const sandbox = await sandboxes.findOneAndUpdate(
      { _id: sandboxId },
      // The time of what is the oldest now is learned when it is removed in its turn.
      { $inc: { textBytes: -textBytes, chunks: -removed.length }, $unset: { oldestUs: "" } },
      { session },
    );
    if (sandbox && textBytes > 0) await addLogBytes(collections, tx, sandbox.workspaceId, -textBytes);
  }
  return found.length;
}
