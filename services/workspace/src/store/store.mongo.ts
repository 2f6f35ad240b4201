import {
  afterPosition,
  createCollections,
  type Db,
  type MongoDatabase,
  type MongoMigration,
  type MongoTransaction,
  openMongo,
} from "@sandgate/kit/storage/mongo";
import { type MongoStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import type { Stale } from "@sandgate/kit/storage/optimistic";
import { Role } from "@sandgate/proto/common/v1/access";
import type { Caps } from "../domain/caps.ts";
import type { Charge } from "../domain/charges.ts";
import type {
  DeletionRecord,
  MemberRecord,
  TakeOver,
  WorkspaceRecord,
  WorkspaceStore,
  WorkspaceView,
} from "./store.ts";

interface WorkspaceDocument extends Omit<WorkspaceRecord, "id"> {
  _id: string;
  /** The charge. An earlier version doesn't set it. */
  chargedTo?: string;
  chargedSince?: number;
}

interface MemberDocument extends MemberRecord {
  workspaceId: string;
  /** The workspace's, so that an index gives a user's workspaces in their order. */
  workspaceCreatedAt: Date;
}

/**
 * One for every user who has been in a workspace. Whatever makes a user a member, or charges a workspace to them, writes here
 * too, and so takes turns with the deletion of their account and with all else that is charged to them.
 */
interface AccountDocument {
  /** The user. */
  _id: string;
  /** How often the user joined or took over a workspace. */
  joins?: number;
  hadPersonalWorkspace?: true;
  /** When the account was deleted. */
  departedAt?: Date;
}

interface DeletionDocument extends Omit<DeletionRecord, "workspaceId"> {
  /** The workspace. */
  _id: string;
  /** Unset once every service has purged. */
  open?: true;
  completedAt?: Date;
  announceAgainAt: Date;
  purges: { service: string; purgedAt?: Date }[];
}

export const migrations: readonly MongoMigration[] = [
  {
    name: "workspace 1: workspaces, members, accounts, deletions",
    run: (db) =>
      createCollections(db, {
        workspaces: [],
        members: [
          { name: "member", key: { workspaceId: 1, userId: 1 }, unique: true },
          { name: "by_joining", key: { workspaceId: 1, joinedAt: -1, userId: -1 } },
          { name: "by_user", key: { userId: 1, workspaceCreatedAt: -1, workspaceId: -1 } },
        ],
        accounts: [],
        deletions: [
          { name: "due", key: { open: 1, announceAgainAt: 1 }, partialFilterExpression: { open: true } },
          { name: "oldest", key: { open: 1, deletedAt: 1 }, partialFilterExpression: { open: true } },
        ],
      }),
  },
  {
    name: "workspace 2: workspaces by owner",
    expands: true,
    run: (db) => createCollections(db, { members: [{ name: "by_role", key: { userId: 1, role: 1 } }] }),
  },
  {
    name: "workspace 3: whom workspaces are charged to",
    expands: true,
    async run(db) {
      await createCollections(db, { workspaces: [{ name: "by_charge", key: { chargedTo: 1 } }] });
      await chargeFirstOwners(db);
    },
  },
];

const collectionsOf = (db: Db) => ({
  workspaces: db.collection<WorkspaceDocument>("workspaces"),
  members: db.collection<MemberDocument>("members"),
  accounts: db.collection<AccountDocument>("accounts"),
  deletions: db.collection<DeletionDocument>("deletions"),
});

function toView(
  { _id, name, createdAt, updatedAt, version }: WorkspaceDocument,
  role: Role | undefined,
): WorkspaceView {
  return { id: _id, name, createdAt, updatedAt, version, role: role ?? Role.UNSPECIFIED };
}

function toMember({ userId, role, joinedAt }: MemberDocument): MemberRecord {
  return { userId, role, joinedAt };
}

function toDeletion({ _id, deletedAt, announcements, version }: DeletionDocument): DeletionRecord {
  return { workspaceId: _id, deletedAt, announcements, version };
}

function toCharge({ chargedTo, chargedSince = 1 }: WorkspaceDocument): Charge | undefined {
  return chargedTo === undefined ? undefined : { userId: chargedTo, since: chargedSince };
}

/** In one statement, since a database that is migrated may have many; whatever is charged in the meantime stays so. */
async function chargeFirstOwners(db: Db): Promise<void> {
  const { workspaces, members } = collectionsOf(db);
  const isFirstOwner = { $expr: { $eq: ["$workspaceId", "$$id"] }, role: Role.OWNER };
  await workspaces
    .aggregate([
      { $match: { chargedTo: null } },
      {
        $lookup: {
          from: members.collectionName,
          let: { id: "$_id" },
          pipeline: [{ $match: isFirstOwner }, { $sort: { joinedAt: 1, userId: 1 } }, { $limit: 1 }],
          as: "owner",
        },
      },
      { $unwind: "$owner" },
      { $project: { owner: "$owner.userId" } },
      {
        $merge: {
          into: workspaces.collectionName,
          whenMatched: [
            {
              $set: {
                chargedTo: { $ifNull: ["$chargedTo", "$$new.owner"] },
                chargedSince: { $ifNull: ["$chargedSince", "$version"] },
              },
            },
          ],
          whenNotMatched: "discard",
        },
      },
    ])
    .toArray();
}

/** Opens the service's database on a replica set, creating and migrating it as needed. */
export async function openMongoStore(options: MongoStoreOptions): Promise<WorkspaceStore> {
  return createMongoStore(await openMongo({ ...options, migrations }));
}

/** The store on a database that has had its migrations. */
export function createMongoStore(database: MongoDatabase): WorkspaceStore {
  const { write } = database;
  const { workspaces, members, accounts, deletions } = collectionsOf(database.db);

  /** Moves the workspace on from `version` and returns it; undefined when it has another version or is gone. */
  async function advance(tx: MongoTransaction, workspaceId: string, version: number) {
    const advanced = await workspaces.findOneAndUpdate(
      { _id: workspaceId, version },
      { $inc: { version: 1 } },
      { session: tx.session },
    );
    return advanced ?? undefined;
  }

  /** False for a user whose account has been deleted. */
  async function join(tx: MongoTransaction, userId: string): Promise<boolean> {
    const account = await accounts.findOneAndUpdate(
      { _id: userId },
      { $inc: { joins: 1 } },
      { upsert: true, returnDocument: "after", session: tx.session },
    );
    return account?.departedAt === undefined;
  }

  /** Whether as many workspaces are charged to the user, who has just been written by `join`, as the caps allow. */
  async function ownsTooMany({ session }: MongoTransaction, userId: string, { maxOwned }: Caps): Promise<boolean> {
    if (maxOwned === 0) return false;
    return (await workspaces.countDocuments({ chargedTo: userId }, { session, limit: maxOwned })) === maxOwned;
  }

  /**
   * `advance` for a change of a member, with which its caller may take the workspace over, unless they own too many. Nothing
   * has changed unless it returns `done`.
   */
  async function advanceWith(
    tx: MongoTransaction,
    workspaceId: string,
    version: number,
    takeOver: TakeOver | undefined,
  ): Promise<"done" | Stale | "owns_too_many"> {
    if (takeOver) {
      await join(tx, takeOver.userId);
      if (await ownsTooMany(tx, takeOver.userId, takeOver.caps)) return "owns_too_many";
    }
    if (!(await advance(tx, workspaceId, version))) return "stale";
    if (takeOver) {
      const charge = { chargedTo: takeOver.userId, chargedSince: version + 1 };
      await workspaces.updateOne({ _id: workspaceId }, { $set: charge }, { session: tx.session });
      await tx.publish([takeOver.event]);
    }
    return "done";
  }

  /** Only a transaction that also advances the workspace may trust this. */
  async function hasTooManyMembers(
    { session }: MongoTransaction,
    workspaceId: string,
    { maxMembers }: Caps,
  ): Promise<boolean> {
    if (maxMembers === 0) return false;
    return (await members.countDocuments({ workspaceId }, { session, limit: maxMembers })) === maxMembers;
  }

  async function insertWorkspace(tx: MongoTransaction, workspace: WorkspaceRecord, ownerId: string): Promise<void> {
    const { id, name, createdAt, updatedAt, version } = workspace;
    const { session } = tx;
    const charge = { chargedTo: ownerId, chargedSince: version };
    await workspaces.insertOne({ _id: id, name, createdAt, updatedAt, version, ...charge }, { session });
    await members.insertOne(
      { workspaceId: id, userId: ownerId, role: Role.OWNER, joinedAt: createdAt, workspaceCreatedAt: createdAt },
      { session },
    );
  }

  async function findWorkspace(workspaceId: string, userId: string): Promise<WorkspaceView | undefined> {
    // The version is read first: if anything changes while the rest is read, the commit on this version fails.
    const workspace = await workspaces.findOne({ _id: workspaceId });
    if (!workspace) return undefined;
    const member = await members.findOne({ workspaceId, userId });
    return toView(workspace, member?.role);
  }

  return {
    ...serviceStoreOf(database),
    findWorkspace,

    async findMember(workspaceId, userId, actorId) {
      // First, for its version: see findWorkspace.
      const workspace = await workspaces.findOne({ _id: workspaceId });
      if (!workspace) return undefined;
      const [actor, member, owners] = await Promise.all([
        members.findOne({ workspaceId, userId: actorId }),
        members.findOne({ workspaceId, userId }),
        members.countDocuments({ workspaceId, role: Role.OWNER }),
      ]);
      return {
        workspace: toView(workspace, actor?.role),
        member: member ? toMember(member) : undefined,
        owners,
        charge: toCharge(workspace),
      };
    },

    async findWorkspaces(workspaceIds, userId) {
      const ids = [...new Set(workspaceIds)];
      const found = await workspaces.find({ _id: { $in: ids } }).toArray();
      const own = await members.find({ userId, workspaceId: { $in: ids } }).toArray();
      const roles = new Map(own.map(({ workspaceId, role }) => [workspaceId, role]));
      return found.map((workspace) => toView(workspace, roles.get(workspace._id)));
    },

    async findCharges(workspaceIds) {
      const found = await workspaces.find({ _id: { $in: [...new Set(workspaceIds)] } }).toArray();
      const charges = found.flatMap((workspace) => {
        const charge = toCharge(workspace);
        return charge ? [{ workspaceId: workspace._id, ...charge }] : [];
      });
      const owners = await members
        .find({
          workspaceId: { $in: charges.map(({ workspaceId }) => workspaceId) },
          userId: { $in: [...new Set(charges.map(({ userId }) => userId))] },
          role: Role.OWNER,
        })
        .toArray();
      const owned = new Set(owners.map(({ workspaceId, userId }) => `${workspaceId} ${userId}`));
      return charges.map((charge) => ({ ...charge, abandoned: !owned.has(`${charge.workspaceId} ${charge.userId}`) }));
    },

    async listWorkspaces(userId, after, limit) {
      const last = after && { workspaceCreatedAt: after.createdAt, workspaceId: after.id };
      const found = await members
        .aggregate<{ role: Role; workspace: WorkspaceDocument }>([
          { $match: { userId, ...afterPosition<MemberDocument>(last) } },
          { $sort: { workspaceCreatedAt: -1, workspaceId: -1 } },
          {
            $lookup: {
              from: workspaces.collectionName,
              localField: "workspaceId",
              foreignField: "_id",
              as: "workspace",
            },
          },
          { $unwind: "$workspace" },
          { $limit: limit },
        ])
        .toArray();
      return found.map(({ role, workspace }) => toView(workspace, role));
    },

    async listMembers(workspaceId, after, limit) {
      const last = after && { joinedAt: after.createdAt, userId: after.id };
      const found = await members
        .find({ workspaceId, ...afterPosition<MemberDocument>(last) })
        .sort({ joinedAt: -1, userId: -1 })
        .limit(limit)
        .toArray();
      return found.map(toMember);
    },

    async hadPersonalWorkspace(userId) {
      return (await accounts.findOne({ _id: userId }))?.hadPersonalWorkspace === true;
    },

    createWorkspace: (workspace, ownerId, caps, events, record) =>
      write(async (tx) => {
        if (!(await join(tx, ownerId))) return "account_deleted";
        if (await ownsTooMany(tx, ownerId, caps)) return "owns_too_many";
        await tx.keepIdempotencyRecord(record);
        await insertWorkspace(tx, workspace, ownerId);
        await tx.publish(events);
        return "done";
      }),

    createPersonalWorkspace: (workspace, ownerId, events) =>
      write(async (tx) => {
        const before = await accounts.findOneAndUpdate(
          { _id: ownerId },
          { $set: { hadPersonalWorkspace: true }, $inc: { joins: 1 } },
          { upsert: true, returnDocument: "before", session: tx.session },
        );
        if (before?.hadPersonalWorkspace || before?.departedAt) return;
        await insertWorkspace(tx, workspace, ownerId);
        await tx.publish(events);
      }),

    renameWorkspace: (workspaceId, version, name, at, events) =>
      write(async (tx) => {
        const renamed = await workspaces.updateOne(
          { _id: workspaceId, version },
          { $set: { name, updatedAt: at }, $inc: { version: 1 } },
          { session: tx.session },
        );
        if (renamed.matchedCount === 0) return "stale";
        await tx.publish(events);
        return "done";
      }),

    deleteWorkspace: (workspaceId, version, services, at, announceAgainAt, events) =>
      write(async (tx) => {
        const { session } = tx;
        const deleted = await workspaces.deleteOne({ _id: workspaceId, version }, { session });
        if (deleted.deletedCount === 0) return "stale";
        await members.deleteMany({ workspaceId }, { session });
        await deletions.insertOne(
          {
            _id: workspaceId,
            deletedAt: at,
            open: true,
            announcements: 1,
            announceAgainAt,
            version: version + 1,
            purges: [...services].sort().map((service) => ({ service })),
          },
          { session },
        );
        await tx.publish(events);
        return "done";
      }),

    addMember: (workspaceId, version, member, caps, events, record) =>
      write(async (tx) => {
        if (!(await join(tx, member.userId))) return "account_deleted";
        if (await hasTooManyMembers(tx, workspaceId, caps)) return "too_many_members";
        const workspace = await advance(tx, workspaceId, version);
        if (!workspace) return "stale";
        await tx.keepIdempotencyRecord(record);
        const { userId, role, joinedAt } = member;
        await members.insertOne(
          { workspaceId, userId, role, joinedAt, workspaceCreatedAt: workspace.createdAt },
          { session: tx.session },
        );
        await tx.publish(events);
        return "done";
      }),

    changeRole: (workspaceId, version, userId, role, events, takeOver) =>
      write(async (tx) => {
        const outcome = await advanceWith(tx, workspaceId, version, takeOver);
        if (outcome === "done") {
          await members.updateOne({ workspaceId, userId }, { $set: { role } }, { session: tx.session });
          await tx.publish(events);
        }
        return outcome;
      }),

    removeMember: (workspaceId, version, userId, events, takeOver) =>
      write(async (tx) => {
        const outcome = await advanceWith(tx, workspaceId, version, takeOver);
        if (outcome === "done") {
          await members.deleteOne({ workspaceId, userId }, { session: tx.session });
          await tx.publish(events);
        }
        return outcome;
      }),

    chargeFirstOwners: () => chargeFirstOwners(database.db),

    async markAccountDeleted(userId, at) {
      await accounts.updateOne({ _id: userId }, [{ $set: { departedAt: { $ifNull: ["$departedAt", at] } } }], {
        upsert: true,
      });
    },

    recordPurge: (workspaceId, service, at) =>
      write(async (tx) => {
        const { session } = tx;
        await deletions.updateOne(
          { _id: workspaceId, purges: { $elemMatch: { service, purgedAt: { $exists: false } } } },
          { $set: { "purges.$.purgedAt": at } },
          { session },
        );
        await deletions.updateOne(
          { _id: workspaceId, open: true, purges: { $not: { $elemMatch: { purgedAt: { $exists: false } } } } },
          { $set: { completedAt: at }, $unset: { open: true } },
          { session },
        );
      }),

    async listDueDeletions(now, limit) {
      const due = await deletions
        .find({ open: true, announceAgainAt: { $lte: now } })
        .sort({ announceAgainAt: 1 })
        .limit(limit)
        .toArray();
      return due.map(toDeletion);
    },

    announceDeletion: (workspaceId, version, announceAgainAt, events) =>
      write(async (tx) => {
        const announced = await deletions.updateOne(
          { _id: workspaceId, version, open: true },
          { $set: { announceAgainAt }, $inc: { version: 1, announcements: 1 } },
          { session: tx.session },
        );
        if (announced.matchedCount === 0) return "stale";
        await tx.publish(events);
        return "done";
      }),

    async oldestOpenDeletion() {
      const oldest = await deletions.findOne({ open: true }, { sort: { deletedAt: 1 } });
      return oldest?.deletedAt;
    },
  };
}
