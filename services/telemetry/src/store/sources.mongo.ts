import { createGroupCommit } from "@sandgate/kit/storage/group-commit";
import type { MongoDatabase, MongoTransaction, ObjectId } from "@sandgate/kit/storage/mongo";
import { type Batch, decideAppend, isFinal } from "../domain/batches.ts";
import { type Chunk, type ChunkKind, fitsInto, maxMerged, mergeChunks, rowsIn } from "../domain/chunks.ts";
import { type LogQuotas, overQuota } from "../domain/quotas.ts";
import { limitsOver } from "../domain/removals.ts";
import type { ChunkDocument, Collections, SandboxDocument } from "./documents.mongo.ts";
import { addLogBytes, removeOldestLogs, trimWorkspace } from "./retention.mongo.ts";
import type { Appended, Sources } from "./sources.ts";

/** As many batches, of a mebibyte at most, as a transaction removes mebibytes, so that quotas hold however much comes. */
const maxTogether = 32;
/** Transactions at once, each of another workspace. */
const maxTransactions = 8;

interface Append {
  batch: Batch;
  quotas: LogQuotas;
  now: Date;
}

/** Rows that a batch adds to a sandbox. */
interface Addition {
  sandboxId: string;
  /** The sandbox's sequence after them. */
  sequence: number;
  chunk: Chunk;
  quotas: LogQuotas;
  /** Of the batch. */
  answer: Appended;
}

/** Sandboxes by their ids: as they were stored, and those that batches change. */
interface Sandboxes {
  before: ReadonlyMap<string, SandboxDocument>;
  changed: Map<string, SandboxDocument>;
}

interface WrittenChunk {
  /** Undefined for a new one. */
  _id?: ObjectId;
  document: ChunkDocument;
}

export function createSources(collections: Collections, write: MongoDatabase["write"]): Sources {
  const { guards, sandboxes } = collections;

  // The guard counts the workspace's lines: transactions of single batches would conflict there.
  const appendTogether = createGroupCommit<Append, Appended>({
    commit: (appends) => write((tx) => appendAll(collections, tx, appends)),
    maxItems: maxTogether,
    keyOf: ({ batch }) => batch.source.workspaceId,
    commitsAtOnce: maxTransactions,
  });

  return {
    // Whoever has given up sends the batch again. If its first call were stored too, a queue would only grow.
    append: (batch, { quotas, now, signal }) => appendTogether({ batch, quotas, now }, signal),

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

/** Stores batches of one workspace, in their order. */
async function appendAll(
  collections: Collections,
  tx: MongoTransaction,
  appends: readonly Append[],
): Promise<readonly Appended[]> {
  const { session } = tx;
  const workspaceId = appends[0]?.batch.source.workspaceId ?? "";
  const guard = await collections.guards.findOne({ _id: workspaceId }, { session });
  const isWorkspaceDeleted = guard?.deletedAt !== undefined;
  const sandboxIds = [...new Set(appends.map(({ batch }) => batch.source.sandboxId))];
  const found = await collections.sandboxes.find({ _id: { $in: sandboxIds } }, { session }).toArray();
  const sandboxes: Sandboxes = { before: new Map(found.map((each) => [each._id, each])), changed: new Map() };
  const additions: Addition[] = [];
  const answers = appends.map(({ batch, quotas, now }): Appended => {
    const { sandboxId, kind } = batch.source;
    const known = sandboxes.changed.get(sandboxId) ?? sandboxes.before.get(sandboxId);
    const { storedCursor, sandbox } = decideAppend({ isWorkspaceDeleted, sandbox: known }, batch);
    const answer = { accepted: sandbox !== undefined, storedCursor, removedLines: { sandbox: 0, workspace: 0 } };
    if (!sandbox) return answer;
    const counts = known ?? { _id: sandboxId, textBytes: 0, chunks: 0 };
    sandboxes.changed.set(sandboxId, { ...counts, ...sandbox, ended: isFinal(sandbox), updatedAt: now });
    const { chunk } = batch;
    if (chunk) additions.push({ sandboxId, sequence: sandbox.sequences[kind], chunk, quotas, answer });
    return answer;
  });
  await storeChunks(collections, tx, sandboxes, additions);
  await storeSandboxes(collections, tx, workspaceId, sandboxes);
  await enforceQuotas(collections, tx, workspaceId, sandboxes, additions);
  return answers;
}

/** Stores rows, in their source's newest chunk or one of their own, and counts them in their sandboxes. */
async function storeChunks(
  { chunks }: Collections,
  { session }: MongoTransaction,
  { before, changed }: Sandboxes,
  additions: readonly Addition[],
): Promise<void> {
  // The newest chunk ends at the sandbox's sequence. A full one is not read.
  const mergeable = additions.flatMap(({ sandboxId, chunk: { kind } }) => {
    const lastSequence = before.get(sandboxId)?.sequences[kind];
    return lastSequence ? { sandboxId, kind, lastSequence, textBytes: { $lt: maxMerged.textBytes } } : [];
  });
  const newest = new Map<string, WrittenChunk>();
  const keyOf = (sandboxId: string, kind: ChunkKind) => `${kind} ${sandboxId}`;
  if (mergeable.length > 0) {
    for await (const { _id, ...document } of chunks.find({ $or: mergeable }, { session })) {
      newest.set(keyOf(document.sandboxId, document.kind), { _id, document });
    }
  }
  const stored = new Set<WrittenChunk>();
  for (const { sandboxId, sequence, chunk } of additions) {
    const key = keyOf(sandboxId, chunk.kind);
    const last = newest.get(key);
    const merged = last && mergeInto(last.document, chunk);
    const mergedBytes = last && merged ? last.document.textBytes : 0;
    const { rows, ...fields } = merged ?? chunk;
    const document = { sandboxId, firstSequence: sequence - rows + 1, lastSequence: sequence, ...fields };
    const next = last && merged ? Object.assign(last, { document }) : { document };
    newest.set(key, next);
    stored.add(next);
    const sandbox = changed.get(sandboxId);
    if (!sandbox) continue;
    const isFirst = !merged && chunk.kind === "logs" && sandbox.textBytes === 0;
    changed.set(sandboxId, {
      ...sandbox,
      textBytes: sandbox.textBytes + document.textBytes - mergedBytes,
      chunks: sandbox.chunks + (merged ? 0 : 1),
      ...(isFirst && { oldestUs: chunk.firstUs }),
    });
  }
  if (stored.size === 0) return;
  const writes = [...stored].map(({ _id, document }) =>
    _id ? { replaceOne: { filter: { _id }, replacement: document } } : { insertOne: { document } },
  );
  await chunks.bulkWrite(writes, { session, ordered: false });
}

/** Undefined when the chunk is full. */
function mergeInto(last: ChunkDocument, next: Chunk): Chunk | undefined {
  const chunk = { ...last, rows: rowsIn(last) };
  return fitsInto(chunk, next) ? mergeChunks(chunk, next) : undefined;
}

async function storeSandboxes(
  { guards, sandboxes }: Collections,
  { session }: MongoTransaction,
  workspaceId: string,
  { before, changed }: Sandboxes,
): Promise<void> {
  if (changed.size === 0) return;
  // A purge removes a known sandbox's document, so it conflicts with a batch there; for a new one, at the guard.
  const created = [...changed.keys()].filter((sandboxId) => !before.has(sandboxId)).length;
  if (created > 0) {
    await guards.updateOne({ _id: workspaceId }, { $inc: { sandboxes: created } }, { upsert: true, session });
  }
  const writes = [...changed].map(([_id, replacement]) => ({
    replaceOne: { filter: { _id }, replacement, upsert: true },
  }));
  await sandboxes.bulkWrite(writes, { session, ordered: false });
}

/** Counts new lines, and removes others where they exceed a quota. */
async function enforceQuotas(
  collections: Collections,
  tx: MongoTransaction,
  workspaceId: string,
  { before, changed }: Sandboxes,
  additions: readonly Addition[],
): Promise<void> {
  const lines = additions.filter(({ chunk }) => chunk.kind === "logs");
  const last = lines.at(-1);
  if (!last) return;
  const keep = new Map(lines.map(({ sandboxId, sequence }) => [sandboxId, sequence]));
  let grownBytes = 0;
  const lastOfEach = new Map(lines.map((addition) => [addition.sandboxId, addition])).values();
  for (const { sandboxId, quotas, answer } of lastOfEach) {
    const textBytes = changed.get(sandboxId)?.textBytes ?? 0;
    const over = overQuota(quotas.sandboxBytes, textBytes);
    const removed = await removeOldestLogs(collections, tx, sandboxId, limitsOver(over, keep));
    answer.removedLines.sandbox = removed.lines;
    grownBytes += textBytes - (before.get(sandboxId)?.textBytes ?? 0) - removed.bytes;
  }
  const logBytes = await addLogBytes(collections, tx, workspaceId, grownBytes);
  const ofWorkspace = overQuota(last.quotas.workspaceBytes, logBytes);
  const trimmed = await trimWorkspace(collections, tx, workspaceId, limitsOver(ofWorkspace, keep));
  last.answer.removedLines.workspace = trimmed.lines;
}
