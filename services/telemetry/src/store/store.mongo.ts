import { DomainError } from "@sandgate/kit/base/domain-error";
import {
  createCollections,
  type Db,
  type MongoDatabase,
  type MongoMigration,
  type MongoTransaction,
  type ObjectId,
  openMongo,
} from "@sandgate/kit/storage/mongo";
import { type MongoStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import { createPurges, type GuardDocument, guardIndexes } from "@sandgate/kit/workspaces/mongo-guards";
import { auditMigration, createMongoAuditStore } from "./audit.mongo.ts";
import { type Chunk, type ChunkKind, fitsInto, mergeChunks, takePurgeBatch } from "./chunks.ts";
import { overQuota } from "./quotas.ts";
import type { Appended, Source, StoredChunk, TelemetryStore } from "./store.ts";

interface TelemetryGuardDocument extends GuardDocument {
  /** Grows with each new sandbox, so that its first batch conflicts with a deletion of the workspace. */
  sandboxes?: number;
  /** The `textBytes` of all its sandboxes. */
  logBytes?: number;
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
  /** Nothing will follow from any of its sources. */
  ended?: boolean;
  /** The first time of its oldest log chunk, in microseconds; missing where a version that doesn't know it stored that. */
  oldestUs?: number;
  updatedAt: Date;
}

/** Its times are in microseconds. */
interface ChunkDocument extends Omit<Chunk, "rows"> {
  sandboxId: string;
  firstSequence: number;
  lastSequence: number;
}

export const migrations: readonly MongoMigration[] = [
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
  {
    name: "telemetry 2: what workspaces have, and an index for windows",
    expands: true,
    async run(db) {
      await createCollections(db, {
        guards: [{ name: "by_log_bytes", key: { logBytes: 1 }, partialFilterExpression: { logBytes: { $gt: 0 } } }],
        sandboxes: [
          {
            name: "ended_with_logs",
            key: { workspaceId: 1, updatedAt: 1 },
            partialFilterExpression: { ended: true, textBytes: { $gt: 0 } },
          },
          {
            name: "with_logs",
            key: { workspaceId: 1, oldestUs: 1 },
            partialFilterExpression: { textBytes: { $gt: 0 } },
          },
        ],
        // In place of by_time, which a later version removes.
        chunks: [
          {
            name: "by_window",
            key: { sandboxId: 1, kind: 1, lastUs: -1, firstSequence: -1, firstUs: 1, stdoutRows: 1, stderrRows: 1 },
          },
        ],
      });
      const ended = { $allElementsTrue: ["$sources.final"] };
      await collectionsOf(db).sandboxes.updateMany({ ended: { $exists: false } }, [{ $set: { ended } }], {
        hint: { _id: 1 },
      });
    },
  },
  auditMigration,
];

const collectionsOf = (db: Db) => ({
  guards: db.collection<TelemetryGuardDocument>("guards"),
  sandboxes: db.collection<SandboxDocument>("sandboxes"),
  chunks: db.collection<ChunkDocument>("chunks"),
});

/** Chunks removed in one transaction. */
const batchChunks = 32;

/** What was removed of log chunks. */
interface Removed {
  chunks: number;
  lines: number;
  bytes: number;
}

const nothing: Removed = { chunks: 0, lines: 0, bytes: 0 };

const storedFields = { _id: 0, firstSequence: 1, lastSequence: 1, lastUs: 1, textBytes: 1, body: 1 } as const;

/** Opens the database of logs and samples on a replica set, after creating or migrating it. */
export async function openMongoStore(o: MongoStoreOptions): Promise<TelemetryStore> {
  return createMongoStore(await openMongo({ ...o, migrations }));
}

/** The store on a database that has been opened and migrated. */
export function createMongoStore(database: MongoDatabase): TelemetryStore {
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

  /** Stores the rows in a chunk of their own or in the newest one. Returns the chunk's id, and the sandbox as it is then. */
  async function appendChunk(
    { session }: MongoTransaction,
    sandbox: SandboxDocument,
    chunk: Chunk,
  ): Promise<{ chunkId: ObjectId; sandbox: SandboxDocument }> {
    const { kind } = chunk;
    const before = sandbox.sequences[kind];
    const last = await chunks.findOne(
      { sandboxId: sandbox._id, kind },
      { session, sort: { lastSequence: -1 }, projection: { body: 0 } },
    );
    const mergeable =
      last && fitsInto({ rows: last.lastSequence - last.firstSequence + 1, textBytes: last.textBytes }, chunk);
    const stored = mergeable ? await chunks.findOne({ _id: last._id }, { session, projection: { body: 1 } }) : null;
    const sequences = { ...sandbox.sequences, [kind]: before + chunk.rows };
    if (!last || !stored) {
      const { insertedId } = await chunks.insertOne(toDocument(sandbox._id, before + 1, chunk), { session });
      const isOldest = kind === "logs" && sandbox.textBytes === 0;
      const textBytes = sandbox.textBytes + chunk.textBytes;
      const grown = { ...sandbox, sequences, textBytes, chunks: sandbox.chunks + 1 };
      return { chunkId: insertedId, sandbox: isOldest ? { ...grown, oldestUs: chunk.firstUs } : grown };
    }
    const merged = mergeChunks(kind, stored.body, chunk.body);
    await chunks.replaceOne({ _id: last._id }, toDocument(sandbox._id, last.firstSequence, merged), { session });
    // It may grow by more than the new rows: an earlier version counted only the text of the old ones.
    const textBytes = sandbox.textBytes + merged.textBytes - last.textBytes;
    return { chunkId: last._id, sandbox: { ...sandbox, sequences, textBytes } };
  }

  /** Removes a sandbox's oldest log chunks until they come to so many bytes; `most` of them, and not the one to keep. */
  async function removeOldestLogs(
    { session }: MongoTransaction,
    sandboxId: string,
    o: { bytes: number; keep: ObjectId | undefined; most: number },
  ): Promise<Removed> {
    if (o.bytes <= 0) return nothing;
    // One more than is removed: it is the oldest afterwards.
    const oldest = await chunks
      .find({ sandboxId, kind: "logs" }, { session, projection: { body: 0 } })
      .sort({ lastSequence: 1 })
      .limit(o.most + 1)
      .toArray();
    const removed = { ...nothing };
    const gone: ObjectId[] = [];
    for (const { _id, firstSequence, lastSequence, textBytes } of oldest) {
      if (removed.bytes >= o.bytes || removed.chunks === o.most || _id.equals(o.keep)) break;
      gone.push(_id);
      removed.chunks += 1;
      removed.lines += lastSequence - firstSequence + 1;
      removed.bytes += textBytes;
    }
    if (gone.length === 0) return nothing;
    await chunks.deleteMany({ _id: { $in: gone } }, { session });
    const left = oldest[gone.length];
    await sandboxes.updateOne(
      { _id: sandboxId },
      {
        $inc: { textBytes: -removed.bytes, chunks: -removed.chunks },
        ...(left ? { $set: { oldestUs: left.firstUs } } : { $unset: { oldestUs: "" } }),
      },
      { session },
    );
    return removed;
  }

  /** Counts what was added to or removed from the log chunks of a workspace. Returns what it has. */
  async function addLogBytes({ session }: MongoTransaction, workspaceId: string, bytes: number): Promise<number> {
    const guard = await guards.findOneAndUpdate(
      { _id: workspaceId },
      { $inc: { logBytes: bytes } },
      { returnDocument: "after", session },
    );
    return guard?.logBytes ?? 0;
  }

  /**
   * Removes log chunks of a workspace until they come to so many bytes, `batchChunks` at most, and not the one to keep: first
   * those of the sandboxes that ended first, then the oldest.
   */
  async function trimWorkspace(
    tx: MongoTransaction,
    workspaceId: string,
    o: { bytes: number; keep?: ObjectId },
  ): Promise<Removed> {
    const { session } = tx;
    const removed = { ...nothing };
    const removeNext = async (): Promise<Removed> => {
      const bytes = o.bytes - removed.bytes;
      // Two of each, since the first may only have the chunk to keep.
      const ended = await sandboxes
        .find({ workspaceId, ended: true, textBytes: { $gt: 0 } }, { session, projection: { _id: 1 } })
        .sort({ updatedAt: 1 })
        .limit(2)
        .toArray();
      for (const { _id } of ended) {
        const part = await removeOldestLogs(tx, _id, { bytes, keep: o.keep, most: batchChunks - removed.chunks });
        if (part.chunks > 0) return part;
      }
      const live = await sandboxes
        .find({ workspaceId, ended: { $ne: true }, textBytes: { $gt: 0 } }, { session, projection: { _id: 1 } })
        .sort({ oldestUs: 1 })
        .limit(2)
        .toArray();
      for (const { _id } of live) {
        // One, after which another sandbox's may be the oldest.
        const part = await removeOldestLogs(tx, _id, { bytes, keep: o.keep, most: 1 });
        if (part.chunks > 0) return part;
      }
      return nothing;
    };
    while (removed.bytes < o.bytes && removed.chunks < batchChunks) {
      const part = await removeNext();
      if (part.chunks === 0) break;
      removed.chunks += part.chunks;
      removed.lines += part.lines;
      removed.bytes += part.bytes;
    }
    if (removed.chunks > 0) await addLogBytes(tx, workspaceId, -removed.bytes);
    return removed;
  }

  /** Of all workspaces, inside of a transaction or not. */
  async function totalLogBytes(o: { session?: MongoTransaction["session"] } = {}): Promise<number> {
    const [all] = await guards
      .aggregate<{ logBytes: number }>(
        [{ $match: { logBytes: { $gt: 0 } } }, { $group: { _id: null, logBytes: { $sum: "$logBytes" } } }],
        o,
      )
      .toArray();
    return all?.logBytes ?? 0;
  }

  /** Removes some of the chunks that are older than `before`. Returns how many. */
  async function removeExpired(tx: MongoTransaction, before: Date): Promise<number> {
    const { session } = tx;
    const found = await chunks
      .find({ lastUs: { $lt: before.getTime() * 1000 } }, { session, projection: { sandboxId: 1, textBytes: 1 } })
      .limit(batchChunks)
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
      if (sandbox && textBytes > 0) await addLogBytes(tx, sandbox.workspaceId, -textBytes);
    }
    return found.length;
  }

  /** Batches write the guard too, so none is missed or counted twice. */
  function recountWorkspace(workspaceId: string): Promise<void> {
    return write(async ({ session }) => {
      const [all] = await sandboxes
        .aggregate<{ logBytes: number }>(
          [{ $match: { workspaceId } }, { $group: { _id: null, logBytes: { $sum: "$textBytes" } } }],
          { session },
        )
        .toArray();
      await guards.updateOne({ _id: workspaceId }, { $set: { logBytes: all?.logBytes ?? 0 } }, { session });
    }, workspaceId);
  }

  const findDeleted = (workspaceId: string) =>
    guards.findOne({ _id: workspaceId, deletedAt: { $exists: true } }, { projection: { _id: 1 } });

  return {
    ...serviceStoreOf(database),
    ...createPurges(guards, write),
    ...createMongoAuditStore(database),

    appendBatch: (batch, { quotas, now }) =>
      write(
        async (tx): Promise<Appended> => {
          const { source, fromCursor, toCursor, final, chunk } = batch;
          const { containerId, kind, workspaceId } = source;
          const removedLines = { sandbox: 0, workspace: 0 };
          const sandbox = await requireSandbox(tx, source, now);
          const isSource = (other: SandboxDocument["sources"][number]) =>
            other.containerId === containerId && other.kind === kind;
          const storedCursor = sandbox.sources.find(isSource)?.cursor ?? "";
          if (storedCursor !== fromCursor) return { accepted: false, storedCursor, removedLines };
          const others = sandbox.sources.filter((other) => !isSource(other));
          const sources = [...others, { containerId, kind, cursor: toCursor, final }];
          let next: SandboxDocument = {
            ...sandbox,
            sources,
            ended: sources.every((each) => each.final),
            updatedAt: now,
          };
          const appended = chunk && (await appendChunk(tx, next, chunk));
          if (appended) next = appended.sandbox;
          await sandboxes.replaceOne({ _id: next._id }, next, { upsert: true, session: tx.session });
          if (appended && kind === "logs") {
            const { chunkId: keep } = appended;
            const ofSandbox = overQuota(quotas.sandboxBytes, next.textBytes);
            const removed = await removeOldestLogs(tx, next._id, { bytes: ofSandbox, keep, most: batchChunks });
            removedLines.sandbox = removed.lines;
            const grownBytes = next.textBytes - sandbox.textBytes - removed.bytes;
            const ofWorkspace = overQuota(quotas.workspaceBytes, await addLogBytes(tx, workspaceId, grownBytes));
            removedLines.workspace = (await trimWorkspace(tx, workspaceId, { bytes: ofWorkspace, keep })).lines;
          }
          return { accepted: true, storedCursor: toCursor, removedLines };
        },
        // Lines are counted in the guard, at which those of one workspace would conflict.
        batch.chunk?.kind === "logs" ? batch.source.workspaceId : batch.source.sandboxId,
      ),

    async trimTotal(totalBytes) {
      // Asked first without a transaction, which is only needed when there is something to do.
      if ((await totalLogBytes()) <= totalBytes) return { lines: 0, more: false };
      return write(async (tx) => {
        const { session } = tx;
        const over = (await totalLogBytes({ session })) - totalBytes;
        const [largest] = await guards
          .find({ logBytes: { $gt: 0 } }, { session, projection: { _id: 1 } })
          .sort({ logBytes: -1 })
          .limit(1)
          .toArray();
        if (over <= 0 || !largest) return { lines: 0, more: false };
        const { chunks: removed, bytes, lines } = await trimWorkspace(tx, largest._id, { bytes: over });
        return { lines, more: removed > 0 && bytes < over };
      });
    },

    async recountLogs() {
      const counted = await guards
        .find({ logBytes: { $exists: true } }, { projection: { logBytes: 1 } })
        .hint({ _id: 1 })
        .toArray();
      const differing = new Map(counted.map(({ _id, logBytes }) => [_id, logBytes]));
      const stored = sandboxes.aggregate<{ _id: string; logBytes: number }>(
        [{ $group: { _id: "$workspaceId", logBytes: { $sum: "$textBytes" } } }],
        { hint: "by_workspace" },
      );
      for await (const { _id, logBytes } of stored) {
        if ((differing.get(_id) ?? 0) === logBytes) differing.delete(_id);
        else differing.set(_id, logBytes);
      }
      for (const [workspaceId, logBytes] of differing) {
        if (logBytes !== 0) await recountWorkspace(workspaceId);
      }
    },

    // The disk is the database server's.
    reusableBytes: () => undefined,

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
        if ((await removeExpired(tx, before)) === batchChunks) return true;
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
        const batch = takePurgeBatch(found, limits.textBytes);
        const removed = batch.map(({ _id }) => _id);
        // What their sandboxes have counted stays: these go with the last of their chunks.
        if (removed.length > 0) {
          await chunks.deleteMany({ _id: { $in: removed } }, { session });
          await addLogBytes(tx, workspaceId, -batch.reduce((sum, { textBytes }) => sum + textBytes, 0));
        }
        if (removed.length < found.length || removed.length === limits.chunks) return true;
        await sandboxes.deleteMany({ _id: { $in: sandboxIds } }, { session });
        return sandboxIds.length === limits.sandboxes;
      }),
  };
}

function toDocument(sandboxId: string, firstSequence: number, { rows, ...chunk }: Chunk): ChunkDocument {
  return { sandboxId, firstSequence, lastSequence: firstSequence + rows - 1, ...chunk };
}
