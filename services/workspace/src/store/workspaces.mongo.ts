import type { StagedEvent } from "@sandgate/kit/events/outbox";
import { afterPosition, type MongoDatabase, type MongoTransaction } from "@sandgate/kit/storage/mongo";
import { Role } from "@sandgate/proto/common/v1/access";
import { decideCreateWorkspace, mayCreatePersonalWorkspace } from "../domain/accounts.ts";
import { ownerOf } from "../domain/members.ts";
import type { WorkspaceRecord, WorkspaceView } from "../domain/workspaces.ts";
import { lockAccount } from "./accounts.mongo.ts";
import { type Collections, collectionsOf, type MemberDocument, type WorkspaceDocument } from "./collections.mongo.ts";
import { insertDeletion } from "./deletions.mongo.ts";
import type { ChangeOutcome, WorkspaceChange, Workspaces } from "./workspaces.ts";

/**
 * Moves the workspace on from the version that the change names, and applies the change; `stale` on any other version.
 *
 * @param set what changes in the workspace itself
 */
export async function changeWorkspace(
  { workspaces }: Collections,
  tx: MongoTransaction,
  { workspaceId, version, events }: WorkspaceChange,
  set: Partial<WorkspaceDocument>,
  apply?: (workspace: WorkspaceDocument) => Promise<unknown>,
): Promise<ChangeOutcome> {
  const workspace = await workspaces.findOneAndUpdate(
    { _id: workspaceId, version },
    { $set: { ...set, version: version + 1 } },
    { session: tx.session },
  );
  if (!workspace) return "stale";
  await apply?.(workspace);
  await tx.publish(events);
  return "done";
}

export function toView(
  { _id, name, createdAt, updatedAt, version }: WorkspaceDocument,
  role: Role = Role.UNSPECIFIED,
): WorkspaceView {
  return { id: _id, name, createdAt, updatedAt, version, role };
}

export function createWorkspaces({ db, write }: MongoDatabase): Workspaces {
  const collections = collectionsOf(db);
  const { workspaces, members, accounts } = collections;

  async function insertWorkspace(
    tx: MongoTransaction,
    workspace: WorkspaceRecord,
    ownerId: string,
    events: readonly StagedEvent[],
  ): Promise<void> {
    const { id: _id, name, createdAt, updatedAt, version } = workspace;
    const { session } = tx;
    await workspaces.insertOne(
      { _id, name, createdAt, updatedAt, version, chargedTo: ownerId, chargedSince: version },
      { session },
    );
    const owner = { workspaceId: _id, ...ownerOf(workspace, ownerId), workspaceCreatedAt: createdAt };
    await members.insertOne(owner, { session });
    await tx.publish(events);
  }

  /** Adds `workspace` to each of the members. */
  const withWorkspace = [
    { $lookup: { from: workspaces.collectionName, localField: "workspaceId", foreignField: "_id", as: "workspace" } },
    { $unwind: "$workspace" },
  ];

  return {
    async find(workspaceId, userId) {
      // The version is read first: if anything changes while the rest is read, the commit on this version fails.
      const workspace = await workspaces.findOne({ _id: workspaceId });
      if (!workspace) return undefined;
      const member = await members.findOne({ workspaceId, userId });
      return toView(workspace, member?.role);
    },

    async findMany(workspaceIds, userId) {
      const ids = [...new Set(workspaceIds)];
      const found = await workspaces.find({ _id: { $in: ids } }).toArray();
      const own = await members.find({ userId, workspaceId: { $in: ids } }).toArray();
      const roles = new Map(own.map(({ workspaceId, role }) => [workspaceId, role]));
      return found.map((workspace) => toView(workspace, roles.get(workspace._id)));
    },

    async findQuotaOwners(workspaceIds) {
      const found = await workspaces.find({ _id: { $in: [...new Set(workspaceIds)] } }).toArray();
      const owners = await members
        .find({
          workspaceId: { $in: found.map(({ _id }) => _id) },
          userId: { $in: [...new Set(found.map(({ chargedTo }) => chargedTo))] },
          role: Role.OWNER,
        })
        .toArray();
      const owned = new Set(owners.map(({ workspaceId, userId }) => `${workspaceId} ${userId}`));
      return found.map(({ _id, chargedTo, chargedSince }) => ({
        workspaceId: _id,
        userId: chargedTo,
        since: chargedSince,
        abandoned: !owned.has(`${_id} ${chargedTo}`),
      }));
    },

    async list(userId, after, limit) {
      const last = after && { role: after.role, workspaceCreatedAt: after.createdAt, workspaceId: after.id };
      const found = await members
        .aggregate<{ role: Role; workspace: WorkspaceDocument }>([
          { $match: { userId, ...afterPosition<MemberDocument>(last) } },
          { $sort: { role: -1, workspaceCreatedAt: -1, workspaceId: -1 } },
          ...withWorkspace,
          { $limit: limit },
        ])
        .toArray();
      return found.map(({ role, workspace }) => toView(workspace, role));
    },

    async findDefault(userId) {
      const [found] = await members
        .aggregate<{ workspace: WorkspaceDocument }>([
          { $match: { userId, role: Role.OWNER } },
          { $sort: { role: 1, workspaceCreatedAt: 1, workspaceId: 1 } },
          ...withWorkspace,
          { $match: { "workspace.chargedTo": userId } },
          { $limit: 1 },
        ])
        .toArray();
      return found?.workspace._id;
    },

    create: (workspace, ownerId, quotas, events, record) =>
      write(async (tx) => {
        const outcome = decideCreateWorkspace(await lockAccount(collections, tx, ownerId, quotas.maxOwned), quotas);
        if (outcome !== "done") return outcome;
        await tx.keepIdempotencyRecord(record);
        await insertWorkspace(tx, workspace, ownerId, events);
        return "done";
      }),

    createPersonal: (workspace, ownerId, events) =>
      write(async (tx) => {
        if (!mayCreatePersonalWorkspace(await lockAccount(collections, tx, ownerId))) return;
        await accounts.updateOne({ _id: ownerId }, { $set: { hadPersonalWorkspace: true } }, { session: tx.session });
        await insertWorkspace(tx, workspace, ownerId, events);
      }),

    rename: (change, name, at) => write((tx) => changeWorkspace(collections, tx, change, { name, updatedAt: at })),

    delete: (change, deletion) =>
      write((tx) =>
        changeWorkspace(collections, tx, change, {}, async ({ _id }) => {
          const { session } = tx;
          await workspaces.deleteOne({ _id }, { session });
          await members.deleteMany({ workspaceId: _id }, { session });
          await insertDeletion(collections, tx, change, deletion);
        }),
      ),
  };
}
