import type { Collection, IndexDescription } from "mongodb";
import { deleteBatch, type MongoDatabase } from "../storage/mongo.ts";
import type { PurgeStore } from "./workspace-purges.ts";

/** A service's guard of a workspace. Creations in the workspace write it too, so they take turns with its deletion. */
export interface GuardDocument {
  /** The workspace's id. */
  _id: string;
  deletedAt?: Date;
  /** Set from the start of a purge to its end. */
  purging?: true;
  purgedAt?: Date;
}

export const guardIndexes: readonly IndexDescription[] = [
  { name: "purging", key: { purging: 1 }, partialFilterExpression: { purging: true } },
];

/** What finds the guards of purged workspaces by their age. */
export const purgedIndex: IndexDescription = {
  name: "purged",
  key: { purgedAt: 1 },
  partialFilterExpression: { purgedAt: { $exists: true } },
};

/** Creates a purge store over a service's guards. */
export function createPurges(guards: Collection<GuardDocument>, write: MongoDatabase["write"]): PurgeStore {
  return {
    async beginPurge(workspaceId, at) {
      await guards.updateOne(
        { _id: workspaceId },
        [{ $set: { deletedAt: { $ifNull: ["$deletedAt", at] }, purging: true } }, { $unset: "purgedAt" }],
        { upsert: true },
      );
    },
    async listOpenPurges() {
      const open = await guards.find({ purging: true }).toArray();
      return open.map(({ _id }) => _id);
    },
    async listWorkspaces({ limit, afterId = "" }) {
      const found = await guards
        .find({ _id: { $gt: afterId }, deletedAt: { $exists: false } })
        .sort({ _id: 1 })
        .limit(limit)
        .toArray();
      return found.map(({ _id }) => _id);
    },
    completePurge: (workspaceId, at, events) =>
      write(async (tx) => {
        const completed = await guards.updateOne(
          { _id: workspaceId, purging: true },
          { $set: { purgedAt: at }, $unset: { purging: true } },
          { session: tx.session },
        );
        if (completed.matchedCount > 0) await tx.publish(events);
      }),
    deletePurgedBefore: (before, limit) => deleteBatch(guards, { purgedAt: { $lt: before } }, limit),
  };
}
