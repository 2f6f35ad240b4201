import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import {
  afterPosition,
  createCollections,
  type Db,
  deleteBatch,
  type MongoMigration,
  type MongoTransaction,
  openMongo,
} from "@sandgate/kit/storage/mongo";
import { type MongoStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import { createPurges, type GuardDocument, guardIndexes } from "@sandgate/kit/workspaces/mongo-guards";
import {
  type Charge,
  checkInstallationQuota,
  checkQuota,
  checkUserQuota,
  type Held,
  isLimited,
} from "../domain/quota.ts";
import { hasEnded, isLive, type Sandbox, type SandboxState, sandboxStates } from "../domain/sandbox.ts";
import type { SandboxStore, UnfinishedSandbox } from "./store.ts";

interface StoredLabel {
  name: string;
  value: string;
}

interface SandboxDocument extends Omit<Sandbox, "id" | "labels"> {
  _id: string;
  /** As pairs, since a label's name may contain what a field's name can't. */
  labels: StoredLabel[];
  /** Set while it reserves its name. Partial indexes can test a field, not for one of several states. */
  live?: true;
  /** Set until its container is gone. */
  uncleaned?: true;
}

interface SandboxGuardDocument extends GuardDocument {
  liveCount?: number;
  liveMemoryMb?: number;
  /** The charge. An earlier version doesn't set it. */
  chargedTo?: string;
  chargedSince?: number;
}

/** Where creates in the workspaces that are charged to one user take turns. */
interface UserGuardDocument {
  /** The user. */
  _id: string;
  creates: number;
}

interface InstallationDocument {
  _id: "installation";
  installationId: string;
}

/** Labels of more sandboxes are not counted further. */
const mostCounted = 1000;

interface ImageUseDocument {
  /** A name that it has on the engine. */
  _id: string;
  usedAt: Date;
}

const turnsId = "turns";

/** Where creates take turns over all workspaces, while the installation has a quota. */
interface InstallationTurns {
  _id: typeof turnsId;
  creates: number;
}

// Lists name their index: the server may try another that it has to sort for.
const newest = "newest";
const newestByState = "newest_by_state";
const newestByLabel = "newest_by_label";
const newestOfAll = "newest_of_all";
const newestOfUser = "newest_of_user";

const migrations: readonly MongoMigration[] = [
  {
    name: "sandbox 1: sandboxes, guards, installation",
    run: (db) =>
      createCollections(db, {
        sandboxes: [
          {
            name: "live_name",
            key: { workspaceId: 1, name: 1 },
            unique: true,
            partialFilterExpression: { live: true },
          },
          { name: "by_name", key: { workspaceId: 1, name: 1, live: -1, createdAt: -1, _id: -1 } },
          { name: newest, key: { workspaceId: 1, createdAt: -1, _id: -1 } },
          { name: "unfinished", key: { uncleaned: 1, _id: 1 }, partialFilterExpression: { uncleaned: true } },
          { name: "uncleaned", key: { workspaceId: 1, uncleaned: 1 }, partialFilterExpression: { uncleaned: true } },
          {
            name: "cleaned",
            key: { workspaceId: 1, cleanedAt: 1 },
            partialFilterExpression: { cleanedAt: { $exists: true } },
          },
          { name: "ended", key: { stoppedAt: 1 }, partialFilterExpression: { cleanedAt: { $exists: true } } },
        ],
        guards: guardIndexes,
        installation: [],
      }),
  },
  {
    name: "sandbox 2: what is live in each workspace",
    expands: true,
    run: (db) =>
      createCollections(db, {
        guards: [
          {
            name: "live",
            key: { liveCount: 1, liveMemoryMb: 1 },
            partialFilterExpression: { liveCount: { $gt: 0 } },
          },
        ],
      }),
  },
  {
    name: "sandbox 3: newest of a state and of a label",
    expands: true,
    run: (db) =>
      createCollections(db, {
        sandboxes: [
          { name: newestByState, key: { workspaceId: 1, state: 1, createdAt: -1, _id: -1 } },
          { name: newestByLabel, key: { workspaceId: 1, labels: 1, state: 1, createdAt: -1, _id: -1 } },
        ],
      }),
  },
  {
    name: "sandbox 4: whom workspaces are charged to",
    expands: true,
    run: (db) =>
      createCollections(db, {
        guards: [
          {
            name: "charged",
            key: { chargedTo: 1, _id: 1, liveCount: 1, liveMemoryMb: 1 },
            partialFilterExpression: { liveCount: { $gt: 0 } },
          },
        ],
        user_guards: [],
      }),
  },
  {
    name: "sandbox 5: uses of images",
    expands: true,
    run: (db) => createCollections(db, { image_uses: [] }),
  },
  {
    name: "sandbox 6: newest of all workspaces and of a user",
    expands: true,
    run: (db) =>
      createCollections(db, {
        sandboxes: [
          { name: newestOfAll, key: { state: 1, createdAt: -1, _id: -1 } },
          { name: newestOfUser, key: { createdBy: 1, state: 1, createdAt: -1, _id: -1 } },
        ],
      }),
  },
];

const collectionsOf = (db: Db) => ({
  sandboxes: db.collection<SandboxDocument>("sandboxes"),
  guards: db.collection<SandboxGuardDocument>("guards"),
  userGuards: db.collection<UserGuardDocument>("user_guards"),
  installation: db.collection<InstallationDocument>("installation"),
  turns: db.collection<InstallationTurns>("installation"),
  imageUses: db.collection<ImageUseDocument>("image_uses"),
});

function toDocument({ id, labels, cleanedAt: _, ...record }: Sandbox): SandboxDocument {
  return {
    _id: id,
    ...record,
    labels: Object.entries(labels).map(([name, value]) => ({ name, value })),
    ...(isLive(record.state) && { live: true }),
    uncleaned: true,
  };
}

function toSandbox({ _id, labels, live: _live, uncleaned: _uncleaned, ...record }: SandboxDocument): Sandbox {
  return { id: _id, ...record, labels: Object.fromEntries(labels.map(({ name, value }) => [name, value])) };
}

/** The fields of a guard after this charge, in an aggregation: a later one stays. */
function chargedWith({ userId, since }: Charge) {
  const isLater = { $lt: [{ $ifNull: ["$chargedSince", 0] }, since] };
  return {
    chargedTo: { $cond: [isLater, { $literal: userId }, "$chargedTo"] },
    chargedSince: { $cond: [isLater, since, "$chargedSince"] },
  };
}

/** Opens the database of sandboxes on a replica set; creates or migrates it first. */
export async function openMongoStore(o: MongoStoreOptions): Promise<SandboxStore> {
  const database = await openMongo({ ...o, migrations });
  const { write } = database;
  const { sandboxes, guards, userGuards, installation, turns, imageUses } = collectionsOf(database.db);

  /** What all workspaces hold, this transaction's own included. Until it is over no other can add to that. */
  async function holdAll(tx: MongoTransaction): Promise<Held> {
    await turns.updateOne({ _id: turnsId }, { $inc: { creates: 1 } }, { upsert: true, session: tx.session });
    return sumOf(tx, {});
  }

  /** The same for the workspaces that are charged to a user. */
  async function holdAllOf(tx: MongoTransaction, userId: string): Promise<Held> {
    await userGuards.updateOne({ _id: userId }, { $inc: { creates: 1 } }, { upsert: true, session: tx.session });
    return sumOf(tx, { chargedTo: userId });
  }

  async function sumOf({ session }: MongoTransaction, which: Pick<SandboxGuardDocument, "chargedTo">): Promise<Held> {
    const [all] = await guards
      .aggregate<Held>(
        [
          { $match: { ...which, liveCount: { $gt: 0 } } },
          { $group: { _id: null, sandboxes: { $sum: "$liveCount" }, memoryMb: { $sum: "$liveMemoryMb" } } },
        ],
        { session },
      )
      .toArray();
    return all ?? { sandboxes: 0, memoryMb: 0 };
  }

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

  return {
    ...serviceStoreOf(database),
    ...createPurges(guards, write),

    async installationId() {
      const found = await installation.findOneAndUpdate(
        { _id: "installation" },
        { $setOnInsert: { installationId: newId() } },
        { upsert: true, returnDocument: "after" },
      );
      if (!found) throw new Error("The installation's id was neither found nor created.");
      return found.installationId;
    },

    create(sandbox, charge, quotas, events, record, signal) {
      const { workspaceId, name } = sandbox;
      const isUserLimited = isLimited(quotas.user);
      const isInstallationLimited = isLimited(quotas.installation);
      const work = async (tx: MongoTransaction) => {
        const { session } = tx;
        // Creates that wait for their turn behind slow ones would come too late, one after the other.
        signal?.throwIfAborted();
        // The guard is written first: concurrent creates in a workspace, and its deletion, conflict on it.
        const guard = await guards.findOneAndUpdate(
          { _id: workspaceId },
          [
            {
              $set: {
                liveCount: { $add: [{ $ifNull: ["$liveCount", 0] }, 1] },
                liveMemoryMb: { $add: [{ $ifNull: ["$liveMemoryMb", 0] }, sandbox.image.memoryMb] },
                ...(charge && chargedWith(charge)),
              },
            },
          ],
          { upsert: true, returnDocument: "after", session },
        );
        await tx.keepIdempotencyRecord(record);
        if (guard?.deletedAt) throw new DomainError("WORKSPACE_FORBIDDEN", "The workspace was deleted.");
        checkQuota(quotas.workspace, { sandboxes: guard?.liveCount ?? 0, memoryMb: guard?.liveMemoryMb ?? 0 });
        if (isUserLimited && guard?.chargedTo) checkUserQuota(quotas.user, await holdAllOf(tx, guard.chargedTo));
        if (isInstallationLimited) checkInstallationQuota(quotas.installation, await holdAll(tx));
        if (await sandboxes.findOne({ workspaceId, name, live: true }, { session, projection: { _id: 1 } })) {
          throw new DomainError("SANDBOX_NAME_CONFLICT", `A live sandbox has the name ${name}.`);
        }
        await sandboxes.insertOne(toDocument(sandbox), { session });
        await tx.publish(events);
      };
      const turn = charge && isUserLimited ? charge.userId : workspaceId;
      return write(work, isInstallationLimited ? turnsId : turn);
    },

    async chargeWorkspace(workspaceId, charge) {
      await guards.updateOne({ _id: workspaceId }, [{ $set: chargedWith(charge) }], { upsert: true });
    },

    async listUncharged({ limit, afterId = "" }) {
      const found = await guards
        .find(
          { chargedTo: { $exists: false }, liveCount: { $gt: 0 }, _id: { $gt: afterId } },
          { projection: { _id: 1 } },
        )
        .sort({ _id: 1 })
        .limit(limit)
        .toArray();
      return found.map(({ _id }) => _id);
    },

    update: (sandbox, events) =>
      write(
        async (tx) => {
          const { session } = tx;
          const before = await sandboxes.findOneAndReplace(
            { _id: sandbox.id, version: sandbox.version - 1 },
            toDocument(sandbox),
            { session, projection: { state: 1 } },
          );
          if (!before) return false;
          if (hasEnded(sandbox.state) && !hasEnded(before.state)) {
            await guards.updateOne(
              { _id: sandbox.workspaceId },
              { $inc: { liveCount: -1, liveMemoryMb: -sandbox.image.memoryMb } },
              { session },
            );
          }
          await tx.publish(events);
          return true;
        },
        hasEnded(sandbox.state) ? sandbox.workspaceId : undefined,
      ),

    async markCleaned(id, at) {
      await sandboxes.updateOne(
        { _id: id, uncleaned: true, state: { $in: ["stopped", "failed"] } },
        { $set: { cleanedAt: at }, $unset: { uncleaned: true } },
      );
    },

    async get(id) {
      const found = await sandboxes.findOne({ _id: id });
      return found ? toSandbox(found) : undefined;
    },

    async find(workspaceId, idOrName) {
      const found =
        (await sandboxes.findOne({ _id: idOrName, workspaceId })) ??
        (await sandboxes.findOne({ workspaceId, name: idOrName }, { sort: { live: -1, createdAt: -1, _id: -1 } }));
      return found ? toSandbox(found) : undefined;
    },

    async list(workspaceId, { states, labels }, { limit, after }) {
      // An index that has the states in it gives a list in its order only for states that are named.
      const among = states.length === 0 && Object.keys(labels).length > 0 ? sandboxStates : states;
      const wanted = await orderByRarity(workspaceId, among, labels);
      const index = wanted.length > 0 ? newestByLabel : among.length > 0 ? newestByState : newest;
      const found = await sandboxes
        .find({
          workspaceId,
          ...afterPosition<SandboxDocument>(after && { createdAt: after.createdAt, _id: after.id }),
          ...(among.length > 0 && { state: { $in: [...among] } }),
          ...(wanted.length > 0 && { labels: { $all: wanted } }),
        })
        .hint(index)
        .sort({ createdAt: -1, _id: -1 })
        .limit(limit)
        .toArray();
      return found.map(toSandbox);
    },

    async listAll({ states, workspaceId, createdBy }, { limit, after }) {
      const found = await sandboxes
        .find({
          ...(createdBy !== undefined && { createdBy }),
          ...(workspaceId !== undefined && { workspaceId }),
          state: { $in: states.length === 0 ? [...sandboxStates] : [...states] },
          ...afterPosition<SandboxDocument>(after && { createdAt: after.createdAt, _id: after.id }),
        })
        .hint(createdBy !== undefined ? newestOfUser : workspaceId !== undefined ? newestByState : newestOfAll)
        .sort({ createdAt: -1, _id: -1 })
        .limit(limit)
        .toArray();
      return found.map(toSandbox);
    },

    async listUnfinished({ limit, afterId = "" }) {
      const found = await sandboxes
        .find({ uncleaned: true, _id: { $gt: afterId } })
        .sort({ _id: 1 })
        .limit(limit)
        .project<Omit<UnfinishedSandbox, "id"> & { _id: string }>({
          state: 1,
          startedAt: 1,
          expiresAt: 1,
          pinnedReference: 1,
        })
        .toArray();
      return found.map(({ _id, ...rest }) => ({ id: _id, ...rest }));
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

    async listLive(workspaceId, limit) {
      const found = await sandboxes.find({ workspaceId, live: true }).limit(limit).toArray();
      return found.map(toSandbox);
    },

    async listUncleaned(workspaceId, limit) {
      const found = await sandboxes.find({ workspaceId, uncleaned: true }).limit(limit).toArray();
      return found.map(toSandbox);
    },

    deleteCleaned: (workspaceId, limit) => deleteBatch(sandboxes, { workspaceId, cleanedAt: { $exists: true } }, limit),

    async recordImageUse({ name, at }) {
      await imageUses.updateOne({ _id: name }, { $max: { usedAt: at } }, { upsert: true });
    },

    async listImageUses() {
      const found = await imageUses.find().sort({ _id: 1 }).toArray();
      return found.map(({ _id, usedAt }) => ({ name: _id, at: usedAt }));
    },

    async forgetImageUses(names) {
      await imageUses.deleteMany({ _id: { $in: [...names] } });
    },

    deleteEndedBefore: (before, limit) =>
      deleteBatch(sandboxes, { cleanedAt: { $exists: true }, stoppedAt: { $lt: before } }, limit),
  };
}
