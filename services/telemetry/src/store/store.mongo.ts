import { DomainError } from "@sandgate/kit/base/domain-error";
import {
  createCollections,
  type Db,
  type MongoMigration,
  type MongoTransaction,
  openMongo,
} from "@sandgate/kit/storage/mongo";
import { type MongoStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import { createPurges, type GuardDocument, guardIndexes } from "@sandgate/kit/workspaces/mongo-guards";
import { type Chunk, type ChunkKind, fitsInto, mergeChunks, takePurgeBatch } from "./chunks.ts";
import type { Source, StoredChunk, TelemetryStore } from "./store.ts";

interface TelemetryGuardDocument extends GuardDocument {
  /** Grows with each new sandbox, so that its first batch conflicts with a deletion of the workspace. */
  sandboxes?: number;
}

/** Every batch writes its sandbox's document, so that the cursors change in one compare-and-set with the rows. */
interface SandboxDocument {
  _id: string;
  workspaceId: string;
  /** Sequences of the newest rows; 0: none yet. */
  sequences: Record<ChunkKind, number>;
  /** Of all its chunks together. */
  textBytes: number;
  /** The number of its chunks. */
  chunks: number;
  sources: (Pick<Source, "containerId" | "kind"> & { cursor: string; final: boolean })[];
  updatedAt: Date;
}

/** Its times are in microseconds. */
interface ChunkDocument extends Omit<Chunk, "rows"> {
  sandboxId: string;
  firstSequence: number;
  lastSequence: number;
}

const migrations: readonly MongoMigration[] = [
  {
    name: "telemetry 1: guards, sandboxes, chunks",
    run: (db) =>
      createCollections(db, {
        guards: guardIndexes,
        sandboxes: [
          { name: "by_workspace", key: { workspaceId: 1 } },
          { name: "by_update", key: { chunks: 1, updatedAt: 1 } },
        ],
        chunks: [
          { name: "by_sequence", key: { sandboxId: 1, kind: 1, lastSequence: 1 }, unique: true },
          { name: "by_time", key: { sandboxId: 1, kind: 1, lastUs: -1, firstSequence: -1 } },
          { name: "by_age", key: { lastUs: 1 } },
        ],
      }),
  },
];

const collectionsOf = (db: Db) => ({
  guards: db.collection<TelemetryGuardDocument>("guards"),
  sandboxes: db.collection<SandboxDocument>("sandboxes"),
  chunks: db.collection<ChunkDocument>("chunks"),
});

/** Chunks removed in one transaction. */
const batchChunks = 32;

const storedFields = { _id: 0, firstSequence: 1, lastUs: 1, body: 1 } as const;

/** Opens the database of logs and samples on a replica set, after creating or migrating it. */
export async function openMongoStore(o: MongoStoreOptions): Promise<TelemetryStore> {
  const database = await openMongo({ ...o, migrations });
  const { write } = database;
  const { guards, sandboxes, chunks } = collectionsOf(database.db);

  /** The sandbox's document, or what becomes a new sandbox's. */
  async function requireSandbox(
    tx: MongoTransaction,
    { sandboxId, workspaceId }: Source,
    now: Date,
  ): Promise<SandboxDocument> {
    const { session } = tx;
    const known = await sandboxes.findOne({ _id: sandboxId }, { session });
    if (known && known.workspaceId !== workspaceId) {
      throw new DomainError("CONFLICT", "The sandbox is another workspace's.");
    }
    // A purge removes a known sandbox's document, which this transaction writes; for a new one they conflict at the guard.
    const guard = known
      ? await guards.findOne({ _id: workspaceId }, { session })
      : await guards.findOneAndUpdate(
          { _id: workspaceId },
          { $inc: { sandboxes: 1 } },
          { upsert: true, returnDocument: "after", session },
        );
    if (guard?.deletedAt) throw new DomainError("WORKSPACE_NOT_FOUND", "The workspace was deleted.");
    return (
      known ?? {
        _id: sandboxId,
        workspaceId,
        sequences: { logs: 0, metrics: 0 },
        textBytes: 0,
        chunks: 0,
        sources: [],
        updatedAt: now,
      }
    );
  }

  /** Stores the rows in a chunk of their own or in the newest one. Returns the sandbox as it is then. */
  async function appendChunk(
    { session }: MongoTransaction,
    sandbox: SandboxDocument,
    chunk: Chunk,
  ): Promise<SandboxDocument> {
    const { kind } = chunk;
    const before = sandbox.sequences[kind];
    const last = await chunks.findOne(
      { sandboxId: sandbox._id, kind },
      { session, sort: { lastSequence: -1 }, projection: { body: 0 } },
    );
    const mergeable =
      last && fitsInto({ rows: last.lastSequence - last.firstSequence + 1, textBytes: last.textBytes }, chunk);
    const stored = mergeable ? await chunks.findOne({ _id: last._id }, { session, projection: { body: 1 } }) : null;
    let grownBytes = chunk.textBytes;
    if (last && stored) {
      const merged = mergeChunks(kind, stored.body, chunk.body);
      // It may grow by more than the new rows: an earlier version counted only the text of the old ones.
      grownBytes = merged.textBytes - last.textBytes;
      await chunks.replaceOne({ _id: last._id }, toDocument(sandbox._id, last.firstSequence, merged), { session });
    } else {
      await chunks.insertOne(toDocument(sandbox._id, before + 1, chunk), { session });
    }
    return {
      ...sandbox,
      sequences: { ...sandbox.sequences, [kind]: before + chunk.rows },
      textBytes: sandbox.textBytes + grownBytes,
      chunks: sandbox.chunks + (stored ? 0 : 1),
    };
  }

  /** The newest chunk always stays. A quota that was lowered is enforced batch by batch. */
  async function enforceQuota(
    { session }: MongoTransaction,
    sandbox: SandboxDocument,
    quotaBytes: number,
  ): Promise<SandboxDocument> {
    let over = sandbox.textBytes - quotaBytes;
    if (over <= 0) return sandbox;
    const oldest = await chunks
      .find({ sandboxId: sandbox._id, kind: "logs" }, { session, projection: { textBytes: 1, lastSequence: 1 } })
      .sort({ lastSequence: 1 })
      .limit(batchChunks)
      .toArray();
    const removed = oldest.filter(({ textBytes, lastSequence }) => {
      if (over <= 0 || lastSequence === sandbox.sequences.logs) return false;
      over -= textBytes;
      return true;
    });
    if (removed.length > 0) await chunks.deleteMany({ _id: { $in: removed.map(({ _id }) => _id) } }, { session });
    return { ...sandbox, textBytes: over + quotaBytes, chunks: sandbox.chunks - removed.length };
  }

  /** Removes some of the chunks that match, and subtracts them from their sandboxes. Returns how many. */
  async function removeChunks(
    { session }: MongoTransaction,
    filter: { sandboxId: string } | { lastUs: { $lt: number } },
  ) {
    const found = await chunks
      .find(filter, { session, projection: { sandboxId: 1, textBytes: 1 } })
      .limit(batchChunks)
      .toArray();
    if (found.length === 0) return 0;
    await chunks.deleteMany({ _id: { $in: found.map(({ _id }) => _id) } }, { session });
    for (const [sandboxId, removed] of Map.groupBy(found, (chunk) => chunk.sandboxId)) {
      const textBytes = removed.reduce((sum, chunk) => sum + chunk.textBytes, 0);
      await sandboxes.updateOne(
        { _id: sandboxId },
        { $inc: { textBytes: -textBytes, chunks: -removed.length } },
        { session },
      );
    }
    return found.length;
  }

  return {
    ...serviceStoreOf(database),
    ...createPurges(guards, write),

    appendBatch: (batch, { logQuotaBytes, now }) =>
      write(async (tx) => {
        const { source, fromCursor, toCursor, final, chunk } = batch;
        const { containerId, kind } = source;
        const sandbox = await requireSandbox(tx, source, now);
        const isSource = (other: SandboxDocument["sources"][number]) =>
          other.containerId === containerId && other.kind === kind;
        const storedCursor = sandbox.sources.find(isSource)?.cursor ?? "";
        if (storedCursor !== fromCursor) return { accepted: false, storedCursor };
        const others = sandbox.sources.filter((other) => !isSource(other));
        let next: SandboxDocument = {
          ...sandbox,
          sources: [...others, { containerId, kind, cursor: toCursor, final }],
          updatedAt: now,
        };
        if (chunk) next = await appendChunk(tx, next, chunk);
        if (kind === "logs" && logQuotaBytes > 0) next = await enforceQuota(tx, next, logQuotaBytes);
        await sandboxes.replaceOne({ _id: next._id }, next, { upsert: true, session: tx.session });
        return { accepted: true, storedCursor: toCursor };
      }, batch.source.sandboxId),

    async findSandbox(sandboxId) {
      const found = await sandboxes.findOne({ _id: sandboxId });
      return found
        ? {
            workspaceId: found.workspaceId,
            sequences: found.sequences,
            final: found.sources.length > 0 && found.sources.every((source) => source.final),
          }
        : undefined;
    },

    async isDrained({ sandboxId, workspaceId, containerId }) {
      const isSource = { $elemMatch: { containerId, kind: "logs" as const, final: true } };
      const found = await Promise.all([
        sandboxes.findOne({ _id: sandboxId, sources: isSource }, { projection: { _id: 1 } }),
        guards.findOne({ _id: workspaceId, deletedAt: { $exists: true } }, { projection: { _id: 1 } }),
      ]);
      return found.some(Boolean);
    },

    async listChunks({ sandboxId, kind, sinceUs, untilUs, stream, after, limit }) {
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

    async listChunksAfter({ sandboxId, kind, sequence, limit }) {
      return chunks
        .find({ sandboxId, kind, lastSequence: { $gt: sequence } })
        .project<StoredChunk>(storedFields)
        .sort({ lastSequence: 1 })
        .limit(limit)
        .toArray();
    },

    sweepExpired: (before) =>
      write(async (tx) => {
        const { session } = tx;
        if ((await removeChunks(tx, { lastUs: { $lt: before.getTime() * 1000 } })) === batchChunks) return true;
        const ended = await sandboxes
          .find({ chunks: 0, updatedAt: { $lt: before } }, { session, projection: { _id: 1 } })
          .limit(batchChunks)
          .toArray();
        if (ended.length > 0) await sandboxes.deleteMany({ _id: { $in: ended.map(({ _id }) => _id) } }, { session });
        return ended.length === batchChunks;
      }),

    purgeBatch: (workspaceId, limits) =>
      write(async (tx) => {
        const { session } = tx;
        const projection = { _id: 1 };
        const known = await sandboxes.find({ workspaceId }, { session, projection }).limit(limits.sandboxes).toArray();
        if (known.length === 0) return false;
        const sandboxIds = known.map(({ _id }) => _id);
        const found = await chunks
          .find({ sandboxId: { $in: sandboxIds } }, { session, projection: { textBytes: 1 } })
          .limit(limits.chunks)
          .toArray();
        const removed = takePurgeBatch(found, limits.textBytes).map(({ _id }) => _id);
        // What their sandboxes have counted stays: these go with the last of their chunks.
        if (removed.length > 0) await chunks.deleteMany({ _id: { $in: removed } }, { session });
        if (removed.length < found.length || removed.length === limits.chunks) return true;
        await sandboxes.deleteMany({ _id: { $in: sandboxIds } }, { session });
        return sandboxIds.length === limits.sandboxes;
      }),
  };
}

function toDocument(sandboxId: string, firstSequence: number, { rows, ...chunk }: Chunk): ChunkDocument {
  return { sandboxId, firstSequence, lastSequence: firstSequence + rows - 1, ...chunk };
}
