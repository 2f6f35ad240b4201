import {
  afterPlace,
  createCollections,
  type Db,
  type MongoMigration,
  type MongoTransaction,
  openMongo,
} from "@sandgate/kit/storage/mongo";
import { type MongoStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import { Role } from "@sandgate/proto/common/v1/access";
import type { Caps } from "../domain/caps.ts";
import type { DeletionRecord, MemberRecord, WorkspaceRecord, WorkspaceStore, WorkspaceView } from "./store.ts";

interface WorkspaceDocument extends Omit<WorkspaceRecord, "id"> {
  _id: string;
}

interface MemberDocument extends MemberRecord {
  workspaceId: string;
  /** The workspace's, so that an index gives a user's workspaces in their order. */
  workspaceCreatedAt: Date;
}

/**
 * One for every user who has been in a workspace. Whatever makes a user a member or an owner writes here too, and so takes
 * turns with the deletion of their account and with all else that lets them own more.
 */
interface AccountDocument {
  /** The user. */
  _id: string;
  /** How often the user was made a member or an owner. */
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

const migrations: readonly MongoMigration[] = [
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

/** Opens the service's database on a replica set, creating and migrating it as needed. */
export async function openMongoStore(options: MongoStoreOptions): Promise<WorkspaceStore> {
  const database = await openMongo({ ...options, migrations });
  const { write } = database;
  const { workspaces, members, accounts, deletions } = collectionsOf(database.db);

  /** Moves the workspace on from `version` and answers it; undefined when it has another version or is gone. */
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

  /** Whether the user, who has just been written by `join`, owns as many workspaces as the caps allow, apart from this one. */
  async function ownsTooMany(
    { session }: MongoTransaction,
    userId: string,
    workspaceId: string,
    { maxOwned }: Caps,
  ): Promise<boolean> {
    if (maxOwned === 0) return false;
    const elsewhere = { userId, role: Role.OWNER, workspaceId: { $ne: workspaceId } };
    return (await members.countDocuments(elsewhere, { session, limit: maxOwned })) === maxOwned;
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
    await workspaces.insertOne({ _id: id, name, createdAt, updatedAt, version }, { session });
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
      const workspace = await findWorkspace(workspaceId, actorId);
      if (!workspace) return undefined;
      const [member, owners] = await Promise.all([
        members.findOne({ workspaceId, userId }),
        members.countDocuments({ workspaceId, role: Role.OWNER }),
      ]);
      return { workspace, member: member ? toMember(member) : undefined, owners };
    },

    async findWorkspaces(workspaceIds, userId) {
      const ids = [...new Set(workspaceIds)];
      const found = await workspaces.find({ _id: { $in: ids } }).toArray();
      const own = await members.find({ userId, workspaceId: { $in: ids } }).toArray();
      const roles = new Map(own.map(({ workspaceId, role }) => [workspaceId, role]));
      return found.map((workspace) => toView(workspace, roles.get(workspace._id)));
    },

    async listWorkspaces(userId, after, limit) {
      const last = after && { workspaceCreatedAt: after.createdAt, workspaceId: after.id };
      const found = await members
        .aggregate<{ role: Role; workspace: WorkspaceDocument }>([
          { $match: { userId, ...afterPlace<MemberDocument>(last) } },
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
        .find({ workspaceId, ...afterPlace<MemberDocument>(last) })
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
        if (await ownsTooMany(tx, ownerId, workspace.id, caps)) return "owns_too_many";
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

    async renameWorkspace(workspaceId, version, name, at) {
      const renamed = await workspaces.updateOne(
        { _id: workspaceId, version },
        { $set: { name, updatedAt: at }, $inc: { version: 1 } },
      );
      return renamed.matchedCount === 1 ? "done" : "stale";
    },

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
        if (member.role === Role.OWNER && (await ownsTooMany(tx, member.userId, workspaceId, caps))) {
          return "owns_too_many";
        }
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

    changeRole: (workspaceId, version, userId, role, caps) =>
      write(async (tx) => {
        if (role === Role.OWNER) {
          await join(tx, userId);
          if (await ownsTooMany(tx, userId, workspaceId, caps)) return "owns_too_many";
        }
        if (!(await advance(tx, workspaceId, version))) return "stale";
        await members.updateOne({ workspaceId, userId }, { $set: { role } }, { session: tx.session });
        return "done";
      }),

    removeMember: (workspaceId, version, userId, events) =>
      write(async (tx) => {
        if (!(await advance(tx, workspaceId, version))) return "stale";
        await members.deleteOne({ workspaceId, userId }, { session: tx.session });
        await tx.publish(events);
        return "done";
      }),

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
