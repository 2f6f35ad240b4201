import type { MongoDatabase, MongoTransaction } from "@sandgate/kit/storage/mongo";
import { type AppendState, type Batch, decideAppend, type Source } from "../domain/batches.ts";
import { type Chunk, fitsInto, mergeChunks, rowsIn } from "../domain/chunks.ts";
import { overQuota } from "../domain/quotas.ts";
import { maxRemovedChunks } from "../domain/removals.ts";
import type { ChunkDocument, Collections, SandboxDocument } from "./documents.mongo.ts";
import { addLogBytes, removeOldestLogs, trimWorkspace } from "./retention.mongo.ts";
import type { Sources } from "./sources.ts";

export function createSources(collections: Collections, write: MongoDatabase["write"]): Sources {
  const { guards, sandboxes } = collections;
  const findDeleted = (workspaceId: string) =>
    guards.findOne({ _id: workspaceId, deletedAt: { $exists: true } }, { projection: { _id: 1 } });

  return {
    append: (batch, { quotas, now }) =>
      write(
        async (tx) => {
          const { source, chunk } = batch;
          const { sandboxId, workspaceId, kind } = source;
          const removedLines = { sandbox: 0, workspace: 0 };
          const state = await readState(collections, tx, source);
          const { accepted, storedCursor } = decideAppend(state, batch);
          if (!accepted) return { accepted, storedCursor, removedLines };
          const before = state.sandbox ?? newSandbox(source, now);
          const moved = { ...before, ...moveCursor(before, batch), updatedAt: now };
          const after = chunk ? await storeChunk(collections, tx, moved, chunk) : moved;
          await sandboxes.replaceOne({ _id: sandboxId }, after, { upsert: true, session: tx.session });
          if (!state.sandbox) await touchGuard(collections, tx, workspaceId);
          if (chunk && kind === "logs") {
            const limits = { chunks: maxRemovedChunks, keep: { sandboxId, sequence: after.sequences.logs } };
            const ofSandbox = overQuota(quotas.sandboxBytes, after.textBytes);
            const removed = await removeOldestLogs(collections, tx, sandboxId, { ...limits, bytes: ofSandbox });
            removedLines.sandbox = removed.lines;
            const grownBytes = after.textBytes - before.textBytes - removed.bytes;
            const logBytes = await addLogBytes(collections, tx, workspaceId, grownBytes);
            const ofWorkspace = overQuota(quotas.workspaceBytes, logBytes);
            const trimmed = await trimWorkspace(collections, tx, workspaceId, { ...limits, bytes: ofWorkspace });
            removedLines.workspace = trimmed.lines;
          }
          return { accepted, storedCursor: batch.toCursor, removedLines };
        },
        // Lines are counted in the guard, at which those of one workspace would conflict.
        batch.chunk?.kind === "logs" ? batch.source.workspaceId : batch.source.sandboxId,
      ),

    async findSandbox(sandboxId) {
      const found = await sandboxes.findOne({ _id: sandboxId });
      if (!found) return undefined;
      const { workspaceId, sequences, sources } = found;
      return { workspaceId, sequences, final: sources.length > 0 && sources.every((source) => source.final) };
    },

    async isContainerDrained({ sandboxId, workspaceId, containerId }) {
      const isSource = { $elemMatch: { containerId, kind: "logs" as const, final: true } };
      const found = await Promise.all([
        sandboxes.findOne({ _id: sandboxId, sources: isSource }, { projection: { _id: 1 } }),
        findDeleted(workspaceId),
      ]);
      return found.some(Boolean);
    },

    async isSandboxDrained({ sandboxId, workspaceId }) {
      const logs = (final: boolean) => ({ $elemMatch: { kind: "logs" as const, final } });
      const areFinal = [{ sources: logs(true) }, { sources: { $not: logs(false) } }];
      const found = await Promise.all([
        sandboxes.findOne({ _id: sandboxId, $and: areFinal }, { projection: { _id: 1 } }),
        findDeleted(workspaceId),
      ]);
      return found.some(Boolean);
    },
  };
}

const isOf =
  ({ containerId, kind }: Source) =>
  (other: SandboxDocument["sources"][number]) =>
    other.containerId === containerId && other.kind === kind;

async function readState(
  { guards, sandboxes }: Collections,
  { session }: MongoTransaction,
  source: Source,
): Promise<AppendState & { sandbox: SandboxDocument | undefined }> {
  const guard = await guards.findOne({ _id: source.workspaceId }, { session });
  const sandbox = (await sandboxes.findOne({ _id: source.sandboxId }, { session })) ?? undefined;
  const cursor = sandbox?.sources.find(isOf(source))?.cursor;
  return { isWorkspaceDeleted: guard?.deletedAt !== undefined, sandbox, cursor };
}

/**
 * Makes a new sandbox's first batch conflict with a deletion of the workspace. Later batches conflict with the purge at
 * the sandbox's document, which both write.
 */
async function touchGuard({ guards }: Collections, { session }: MongoTransaction, workspaceId: string): Promise<void> {
  await guards.updateOne({ _id: workspaceId }, { $inc: { sandboxes: 1 } }, { upsert: true, session });
}

function newSandbox({ sandboxId, workspaceId }: Source, now: Date): SandboxDocument {
  const sequences = { logs: 0, metrics: 0 };
  return { _id: sandboxId, workspaceId, sequences, textBytes: 0, chunks: 0, sources: [], updatedAt: now };
}

function moveCursor(sandbox: SandboxDocument, { source, toCursor, final }: Batch) {
  const { containerId, kind } = source;
  const isSource = isOf(source);
  const others = sandbox.sources.filter((other) => !isSource(other));
  const sources = [...others, { containerId, kind, cursor: toCursor, final }];
  return { sources, ended: sources.every((each) => each.final) };
}

/** Stores the rows in the newest chunk or one of their own. Returns the sandbox as it is then. */
async function storeChunk(
  { chunks }: Collections,
  { session }: MongoTransaction,
  sandbox: SandboxDocument,
  chunk: Chunk,
): Promise<SandboxDocument> {
  const { kind } = chunk;
  const { _id: sandboxId, textBytes } = sandbox;
  const sequence = sandbox.sequences[kind] + chunk.rows;
  const sequences = { ...sandbox.sequences, [kind]: sequence };
  const last = await chunks.findOne(
    { sandboxId, kind },
    { session, sort: { lastSequence: -1 }, projection: { body: 0 } },
  );
  const mergeable = last && fitsInto({ rows: rowsIn(last), textBytes: last.textBytes }, chunk);
  const stored = mergeable ? await chunks.findOne({ _id: last._id }, { session, projection: { body: 1 } }) : null;
  if (last && stored) {
    const merged = mergeChunks(kind, stored.body, chunk.body);
    await chunks.replaceOne({ _id: last._id }, toDocument(sandboxId, sequence, merged), { session });
    return { ...sandbox, sequences, textBytes: textBytes + merged.textBytes - last.textBytes };
  }
  await chunks.insertOne(toDocument(sandboxId, sequence, chunk), { session });
  const isOldest = kind === "logs" && textBytes === 0;
  const grown = { ...sandbox, sequences, textBytes: textBytes + chunk.textBytes, chunks: sandbox.chunks + 1 };
  return isOldest ? { ...grown, oldestUs: chunk.firstUs } : grown;
}

function toDocument(sandboxId: string, lastSequence: number, { rows, ...chunk }: Chunk): ChunkDocument {
  return { sandboxId, firstSequence: lastSequence - rows + 1, lastSequence, ...chunk };
}
