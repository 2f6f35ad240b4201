import type { MongoDatabase, MongoTransaction } from "@sandgate/kit/storage/mongo";
import { decideAppend, isFinal } from "../domain/batches.ts";
import { type Chunk, fitsInto, mergeChunks, rowsIn } from "../domain/chunks.ts";
import { type LogQuotas, overQuota } from "../domain/quotas.ts";
import { maxRemovedChunks } from "../domain/removals.ts";
import type { Collections, SandboxDocument } from "./documents.mongo.ts";
import { addLogBytes, removeOldestLogs, trimWorkspace } from "./retention.mongo.ts";
import type { Appended, Sources } from "./sources.ts";

const noLines = { sandbox: 0, workspace: 0 };

export function createSources(collections: Collections, write: MongoDatabase["write"]): Sources {
  const { guards, sandboxes } = collections;
  return {
    append: (batch, { quotas, now, signal }) =>
      write(
        async (tx): Promise<Appended> => {
          // Whoever has given up sends the batch again. If its first call were stored too, a queue would only grow.
          signal?.throwIfAborted();
          const { session } = tx;
          const { source, chunk } = batch;
          const { sandboxId, workspaceId } = source;
          const guard = await guards.findOne({ _id: workspaceId }, { session });
          const before = (await sandboxes.findOne({ _id: sandboxId }, { session })) ?? undefined;
          const isWorkspaceDeleted = guard?.deletedAt !== undefined;
          const { storedCursor, sandbox } = decideAppend({ isWorkspaceDeleted, sandbox: before }, batch);
          if (!sandbox) return { accepted: false, storedCursor, removedLines: noLines };
          // A purge removes a known sandbox's document, so it conflicts with this batch there; for a new one, at the
          // guard.
          if (!before) {
            await guards.updateOne({ _id: workspaceId }, { $inc: { sandboxes: 1 } }, { upsert: true, session });
          }
          const counts = before ?? { _id: sandboxId, textBytes: 0, chunks: 0 };
          const moved = { ...counts, ...sandbox, ended: isFinal(sandbox), updatedAt: now };
          const after = chunk ? await storeChunk(collections, tx, moved, chunk) : moved;
          await sandboxes.replaceOne({ _id: sandboxId }, after, { upsert: true, session });
          if (chunk?.kind !== "logs") return { accepted: true, storedCursor, removedLines: noLines };
          const grownBytes = after.textBytes - moved.textBytes;
          return {
            accepted: true,
            storedCursor,
            removedLines: await enforceQuotas(collections, tx, after, grownBytes, quotas),
          };
        },
        // Lines are counted in the guard, at which those of one workspace would conflict.
        batch.chunk?.kind === "logs" ? batch.source.workspaceId : batch.source.sandboxId,
      ),

    async findSandbox(sandboxId) {
      const found = await sandboxes.findOne({ _id: sandboxId });
      return found ? { workspaceId: found.workspaceId, sequences: found.sequences, sources: found.sources } : undefined;
    },

    async isWorkspaceDeleted(workspaceId) {
      const deleted = { _id: workspaceId, deletedAt: { $exists: true } };
      return (await guards.findOne(deleted, { projection: { _id: 1 } })) !== null;
    },
  };
}

/** Counts the new rows, and removes others where they exceed a quota. Returns how many lines. */
async function enforceQuotas(
  collections: Collections,
  tx: MongoTransaction,
  { _id: sandboxId, workspaceId, textBytes, sequences }: SandboxDocument,
  grownBytes: number,
  quotas: LogQuotas,
): Promise<Appended["removedLines"]> {
  const limits = { chunks: maxRemovedChunks, keep: { sandboxId, sequence: sequences.logs } };
  const ofSandbox = overQuota(quotas.sandboxBytes, textBytes);
  const removed = await removeOldestLogs(collections, tx, sandboxId, { ...limits, bytes: ofSandbox });
  const logBytes = await addLogBytes(collections, tx, workspaceId, grownBytes - removed.bytes);
  const ofWorkspace = overQuota(quotas.workspaceBytes, logBytes);
  const trimmed = await trimWorkspace(collections, tx, workspaceId, { ...limits, bytes: ofWorkspace });
  return { sandbox: removed.lines, workspace: trimmed.lines };
}

/**
 * Stores the rows up to the sandbox's sequence, in the newest chunk or one of their own. Returns the sandbox as it is
 * then.
 */
async function storeChunk(
  { chunks }: Collections,
  { session }: MongoTransaction,
  sandbox: SandboxDocument,
  chunk: Chunk,
): Promise<SandboxDocument> {
  const { kind } = chunk;
  const { _id: sandboxId, textBytes } = sandbox;
  const last = await chunks.findOne(
    { sandboxId, kind },
    { session, sort: { lastSequence: -1 }, projection: { body: 0 } },
  );
  const mergeable = last && fitsInto({ rows: rowsIn(last), textBytes: last.textBytes }, chunk);
  const stored = mergeable ? await chunks.findOne({ _id: last._id }, { session, projection: { body: 1 } }) : null;
  const { rows, ...fields } = stored ? mergeChunks(kind, stored.body, chunk.body) : chunk;
  const lastSequence = sandbox.sequences[kind];
  const document = { sandboxId, firstSequence: lastSequence - rows + 1, lastSequence, ...fields };
  if (last && stored) {
    await chunks.replaceOne({ _id: last._id }, document, { session });
    return { ...sandbox, textBytes: textBytes + fields.textBytes - last.textBytes };
  }
  await chunks.insertOne(document, { session });
  const grown = { ...sandbox, textBytes: textBytes + chunk.textBytes, chunks: sandbox.chunks + 1 };
  return kind === "logs" && textBytes === 0 ? { ...grown, oldestUs: chunk.firstUs } : grown;
}
