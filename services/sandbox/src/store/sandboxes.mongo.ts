import { afterPosition, type Db, type MongoDatabase, type MongoTransaction } from "@sandgate/kit/storage/mongo";
import {
  type CreateState,
  checkCreate,
  chooseEvicted,
  isLimited,
  maxEvicted,
  needsEviction,
  type Quotas,
} from "../domain/quota.ts";
import { hasEnded, isLive, type Sandbox, type SandboxState, sandboxStates } from "../domain/sandbox.ts";
import { deletePreviewsOf } from "./previews.mongo.ts";
import type { Usages } from "./quota-owners.mongo.ts";
import type {
  ListPosition,
  Retention,
  SandboxActivity,
  Sandboxes,
  UnfinishedSandbox,
  UnfinishedSandboxes,
} from "./sandboxes.ts";

interface StoredLabel {
  name: string;
  value: string;
}

export interface SandboxDocument extends Omit<Sandbox, "id" | "labels"> {
  _id: string;
  /** As pairs, since a label's name may contain what a field's name can't. */
  labels: StoredLabel[];
  /** Set while it reserves its name. Partial indexes can test a field, not for one of several states. */
  live?: true;
  /** Set until its container is gone. */
  uncleaned?: true;
  /** Counts up with each preview that is made (`previews.mongo.ts`). A change of the record drops it. */
  turn?: number;
}

/** Lists name their index: the server may try another that it has to sort for. */
export const sandboxIndexes = {
  byName: "by_name",
  newest: "newest",
  newestByState: "newest_by_state",
  newestByLabel: "newest_by_label",
  newestOfAll: "newest_of_all",
  newestOfUser: "newest_of_user",
} as const;

/** The environment variables of a sandbox that has not ended. */
interface EnvDocument {
  /** The sandbox. */
  _id: string;
  workspaceId: string;
  sealed: Uint8Array;
}

const envsOf = (db: Db) => db.collection<EnvDocument>("envs");

const sandboxesOf = (db: Db) => db.collection<SandboxDocument>("sandboxes");

/** Without what is recorded between the changes of a record. */
function toDocument({
  id,
  labels,
  cleanedAt: _cleanedAt,
  lastUsedAt: _lastUsedAt,
  pull: _pull,
  ...record
}: Sandbox): SandboxDocument {
  return {
    _id: id,
    ...record,
    labels: Object.entries(labels).map(([name, value]) => ({ name, value })),
    ...(isLive(record.state) && { live: true }),
    uncleaned: true,
  };
}

function toSandbox({
  _id,
  labels,
  live: _live,
  uncleaned: _uncleaned,
  turn: _turn,
  ...record
}: SandboxDocument): Sandbox {
  return { id: _id, ...record, labels: Object.fromEntries(labels.map(({ name, value }) => [name, value])) };
}

/** The names that begin so: they are of `a` to `z`, digits and dashes, which all come before a brace. */
const namesFrom = (prefix: string) => ({ $gte: prefix, $lt: `${prefix}{` });

const { byName } = sandboxIndexes;

type Which = NonNullable<Parameters<ReturnType<typeof sandboxesOf>["find"]>[0]>;
type EndedRecord = Pick<SandboxDocument, "_id" | "workspaceId" | "recordBytes">;

const cleaned = { cleanedAt: { $exists: true } };

/** The deletion of ended records, in the transaction of something else. */
function createRecordDeletion(db: Db, usages: Usages) {
  const sandboxes = sandboxesOf(db);
  const envs = envsOf(db);
  return {
    /** Up to `limit` of them, those first that were cleaned first if that is asked for. */
    async find({ session }: MongoTransaction, which: Which, limit: number, order?: { cleanedAt: 1 }) {
      const found = sandboxes.find({ ...cleaned, ...which }, { session }).limit(limit);
      return (order ? found.sort(order) : found).project<EndedRecord>({ workspaceId: 1, recordBytes: 1 }).toArray();
    },
    /** Returns how many. */
    async run(tx: MongoTransaction, records: readonly EndedRecord[]): Promise<number> {
      if (records.length === 0) return 0;
      const which = { _id: { $in: records.map(({ _id }) => _id) } };
      await sandboxes.deleteMany(which, { session: tx.session });
      // Of those that an earlier version has ended.
      await envs.deleteMany(which, { session: tx.session });
      await deletePreviewsOf(
        db,
        tx,
        records.map(({ _id }) => _id),
      );
      await usages.releaseRecords(tx, records);
      return records.length;
    },
  };
}

/** Labels and prefixes of more sandboxes are not counted further. */
const mostCounted = 1000;

export function createSandboxes({ db, write }: MongoDatabase, usages: Usages): Sandboxes {
  const sandboxes = sandboxesOf(db);
  const envs = envsOf(db);

  const deletion = createRecordDeletion(db, usages);

  async function evict(tx: MongoTransaction, sandbox: Sandbox, quotas: Quotas, reserved: CreateState) {
    if (!needsEviction(quotas, reserved)) return;
    const state = { ...reserved, recordBytes: await usages.recountRecords(tx, sandbox, reserved.recordBytes) };
    if (!needsEviction(quotas, state)) return;
    const oldest = await deletion.find(tx, { workspaceId: sandbox.workspaceId }, maxEvicted, { cleanedAt: 1 });
    await deletion.run(tx, chooseEvicted(quotas, state, oldest));
  }

  const isNameTaken = async ({ session }: MongoTransaction, { workspaceId, name }: Sandbox): Promise<boolean> =>
    (await sandboxes.findOne({ workspaceId, name, live: true }, { session, projection: { _id: 1 } })) !== null;

  /** The labels, those of the fewest sandboxes first: the server goes through the sandboxes of the first. */
  async function orderByRarity(
    workspaceId: string,
    states: readonly SandboxState[],
    labels: Readonly<Record<string, string>>,
  ): Promise<StoredLabel[]> {
    const stored = Object.entries(labels).map(([name, value]) => ({ name, value }));
    if (stored.length < 2) return stored;
    const counted = await Promise.all(
      stored.map(async (label) => {
        const matching = { workspaceId, labels: label, state: { $in: [...states] } };
        return { label, sandboxes: await sandboxes.countDocuments(matching, { limit: mostCounted }) };
      }),
    );
    return counted.sort((one, other) => one.sandboxes - other.sandboxes).map(({ label }) => label);
  }

  /** Those that match, from a position on, in the order of this index, which the list's is. */
  async function list(
    matching: Parameters<typeof sandboxes.find>[0],
    index: string,
    { limit, after }: { limit: number; after?: ListPosition | undefined },
  ): Promise<Sandbox[]> {
    const position = afterPosition<SandboxDocument>(after && { createdAt: after.createdAt, _id: after.id });
    const found = sandboxes
      .find({ ...matching, ...position })
      .hint(index)
      .sort({ createdAt: -1, _id: -1 });
    if (index === byName) found.comment(`sorts fewer than ${mostCounted}`);
    return (await found.limit(limit).toArray()).map(toSandbox);
  }

  /** Whether few names begin so: more than that are found soon among the newest. */
  async function hasFew(workspaceId: string, namePrefix: string): Promise<boolean> {
    const options = { hint: byName, limit: mostCounted };
    return (await sandboxes.countDocuments({ workspaceId, name: namesFrom(namePrefix) }, options)) < mostCounted;
  }

  return {
    create(sandbox, o, signal) {
      const { installation, user } = o.quotas;
      const work = async (tx: MongoTransaction) => {
        // Creates that wait for their turn behind slow ones would come too late, one after the other.
        signal?.throwIfAborted();
        const reserved = await usages.reserve(tx, sandbox, o);
        await tx.keepIdempotencyRecord(o.record);
        const state = { ...reserved, isNameTaken: await isNameTaken(tx, sandbox) };
        checkCreate(sandbox, o.quotas, state);
        await evict(tx, sandbox, o.quotas, state);
        await sandboxes.insertOne(toDocument(sandbox), { session: tx.session });
        if (o.sealedEnv) {
          const { id: _id, workspaceId } = sandbox;
          await envs.insertOne({ _id, workspaceId, sealed: o.sealedEnv }, { session: tx.session });
        }
        await tx.publish(o.events);
      };
      const ofWorkspace = o.quotaOwner && isLimited(user) ? o.quotaOwner.userId : sandbox.workspaceId;
      return write(work, isLimited(installation) ? "turns" : ofWorkspace);
    },

    update: (sandbox, events) =>
      write(
        async (tx) => {
          const activity = { lastUsedAt: "$lastUsedAt", pull: "$pull" };
          const before = await sandboxes.findOneAndUpdate(
            { _id: sandbox.id, version: sandbox.version - 1 },
            [{ $replaceWith: { $mergeObjects: [{ $literal: toDocument(sandbox) }, activity] } }],
            { session: tx.session, projection: { state: 1 } },
          );
          if (!before) return false;
          if (hasEnded(sandbox.state) && !hasEnded(before.state)) {
            await usages.release(tx, sandbox);
            await envs.deleteOne({ _id: sandbox.id }, { session: tx.session });
            await deletePreviewsOf(db, tx, [sandbox.id]);
          }
          await tx.publish(events);
          return true;
        },
        hasEnded(sandbox.state) ? sandbox.workspaceId : undefined,
      ),

    async get(id) {
      const found = await sandboxes.findOne({ _id: id });
      return found ? toSandbox(found) : undefined;
    },

    async findSealedEnv(id) {
      const found = await envs.findOne({ _id: id });
      return found ? new Uint8Array(found.sealed) : undefined;
    },

    async find(workspaceId, idOrName) {
      const found =
        (await sandboxes.findOne({ _id: idOrName, workspaceId })) ??
        (await sandboxes.findOne({ workspaceId, name: idOrName }, { sort: { live: -1, createdAt: -1, _id: -1 } }));
      return found ? toSandbox(found) : undefined;
    },

    async list(workspaceId, { states, labels, namePrefix }, page) {
      // An index that has the states in it gives a list in its order only for states that are named.
      const among = states.length === 0 && Object.keys(labels).length > 0 ? sandboxStates : states;
      const wanted = await orderByRarity(workspaceId, among, labels);
      const { newest, newestByLabel, newestByState } = sandboxIndexes;
      const matching = {
        workspaceId,
        ...(among.length > 0 && { state: { $in: [...among] } }),
        ...(wanted.length > 0 && { labels: { $all: wanted } }),
        ...(namePrefix && { name: namesFrom(namePrefix) }),
      };
      if (namePrefix && (await hasFew(workspaceId, namePrefix))) return list(matching, byName, page);
      return list(matching, wanted.length > 0 ? newestByLabel : among.length > 0 ? newestByState : newest, page);
    },

    listAll({ states, workspaceId, createdBy }, page) {
      const { newestByState, newestOfAll, newestOfUser } = sandboxIndexes;
      const matching = {
        ...(createdBy !== undefined && { createdBy }),
        ...(workspaceId !== undefined && { workspaceId }),
        state: { $in: states.length === 0 ? [...sandboxStates] : [...states] },
      };
      const index = createdBy !== undefined ? newestOfUser : workspaceId !== undefined ? newestByState : newestOfAll;
      return list(matching, index, page);
    },
  };
}

export function createUnfinishedSandboxes(db: Db): UnfinishedSandboxes {
  const sandboxes = sandboxesOf(db);
  return {
    async list({ limit, afterId = "" }) {
      const found = await sandboxes
        .find({ uncleaned: true, _id: { $gt: afterId } })
        .sort({ _id: 1 })
        .limit(limit)
        .project<Omit<UnfinishedSandbox, "id"> & { _id: string }>({
          state: 1,
          startedAt: 1,
          readyAt: 1,
          lastUsedAt: 1,
          idleTimeoutSeconds: 1,
          expiresAt: 1,
          pinnedReference: 1,
        })
        .toArray();
      return found.map(({ _id, ...record }) => ({ id: _id, ...record }));
    },

    async countByState() {
      const counts = await sandboxes
        .aggregate<{ _id: SandboxState; count: number }>([
          { $match: { uncleaned: true } },
          { $group: { _id: "$state", count: { $sum: 1 } } },
        ])
        .toArray();
      return Object.fromEntries(counts.map(({ _id, count }) => [_id, count]));
    },

    async markCleaned(id, at) {
      await sandboxes.updateOne(
        { _id: id, uncleaned: true, state: { $in: ["stopped", "failed"] } },
        { $set: { cleanedAt: at }, $unset: { uncleaned: true } },
      );
    },
  };
}

export function createActivity({ db, write }: MongoDatabase): SandboxActivity {
  const sandboxes = sandboxesOf(db);
  return {
    async recordUses(uses) {
      await sandboxes.bulkWrite(
        uses.map(({ sandboxId, at }) => ({
          updateOne: { filter: { _id: sandboxId }, update: { $max: { lastUsedAt: at } } },
        })),
        { ordered: false },
      );
    },
    async recordPull(sandboxId, pull) {
      await sandboxes.updateOne({ _id: sandboxId }, { $set: { pull } });
    },
    stageUses: (events) => write((tx) => tx.publishOnce(events)),
  };
}

export function createRetention({ db, write }: MongoDatabase, usages: Usages): Retention {
  const sandboxes = sandboxesOf(db);
  const deletion = createRecordDeletion(db, usages);
  const deleteBatch = (which: Which, limit: number) =>
    write(async (tx) => deletion.run(tx, await deletion.find(tx, which, limit)));
  return {
    async listLive(workspaceId, limit) {
      return (await sandboxes.find({ workspaceId, live: true }).limit(limit).toArray()).map(toSandbox);
    },
    async listUncleaned(workspaceId, limit) {
      return (await sandboxes.find({ workspaceId, uncleaned: true }).limit(limit).toArray()).map(toSandbox);
    },
    deleteCleaned: (workspaceId, limit) => deleteBatch({ workspaceId }, limit),
    deleteEndedBefore: (before, limit) => deleteBatch({ stoppedAt: { $lt: before } }, limit),
  };
}
