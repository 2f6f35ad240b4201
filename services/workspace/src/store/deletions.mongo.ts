import { deleteBatch, type MongoDatabase, type MongoTransaction } from "@sandgate/kit/storage/mongo";
import { type Collections, collectionsOf } from "./collections.mongo.ts";
import type { Deletions, NewDeletion } from "./deletions.ts";
import type { WorkspaceChange } from "./workspaces.ts";

export async function insertDeletion(
  { deletions }: Collections,
  { session }: MongoTransaction,
  { workspaceId, version }: WorkspaceChange,
  { services, deletedAt, announceAgainAt }: NewDeletion,
): Promise<void> {
  await deletions.insertOne(
    {
      _id: workspaceId,
      deletedAt,
      open: true,
      announcements: 1,
      announceAgainAt,
      version: version + 1,
      purges: [...services].sort().map((service) => ({ service })),
    },
    { session },
  );
}

export function createDeletions({ db, write }: MongoDatabase): Deletions {
  const { deletions } = collectionsOf(db);
  return {
    recordPurge: (workspaceId, service, at) =>
      write(async ({ session }) => {
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

    async listDue(now, limit) {
      const due = await deletions
        .find({ open: true, announceAgainAt: { $lte: now } })
        .sort({ announceAgainAt: 1 })
        .limit(limit)
        .toArray();
      return due.map(({ _id, deletedAt, announcements, version }) => ({
        workspaceId: _id,
        deletedAt,
        announcements,
        version,
      }));
    },

    announce: ({ workspaceId, version, events }, announceAgainAt) =>
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

    deleteCompletedBefore: (before, limit) => deleteBatch(deletions, { completedAt: { $lt: before } }, limit),

    async findOldestOpen() {
      const oldest = await deletions.findOne({ open: true }, { sort: { deletedAt: 1 } });
      return oldest?.deletedAt;
    },
  };
}
