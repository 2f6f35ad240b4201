import { addMs, dayMs } from "@sandgate/kit/base/time";
import type { Db, MongoTransaction } from "@sandgate/kit/storage/mongo";
import type { GuardDocument } from "@sandgate/kit/workspaces/mongo-guards";
import {
  type CreateState,
  countFailure,
  type FailureWindow,
  isUsageNeeded,
  type QuotaOwner,
  type Usage,
} from "../domain/quota.ts";
import { isFailedAttempt, type Sandbox } from "../domain/sandbox.ts";
import type { QuotaOwners } from "./quota-owners.ts";
import type { CreateOptions } from "./sandboxes.ts";

interface SandboxGuardDocument extends GuardDocument {
  liveCount?: number;
  liveMemoryMb?: number;
  /** What all its records count for. */
  recordBytes?: number;
  recountedAt?: Date;
  failures?: FailureWindow;
  /** The quota owner. */
  chargedTo?: string;
  chargedSince?: number;
}

/** Where creates in the workspaces of one quota owner take turns. */
interface UserGuardDocument {
  /** The user. */
  _id: string;
  creates: number;
  /** MongoDB removes the document then. An earlier version sets none. */
  expiresAt?: Date;
}

export const userGuardIndexes = [{ name: "unused", key: { expiresAt: 1 }, expireAfterSeconds: 0 }];

/** Longer than any transaction, after which nothing needs the document. Its removal conflicts with one as a create does. */
const userGuardKeptMs = dayMs;

/** Where creates take turns over all workspaces, while the installation has a quota. */
interface InstallationTurns {
  _id: "turns";
  creates: number;
}

/** What workspaces use, for transactions. */
export interface Usages {
  /**
   * Adds a new sandbox to what its workspace uses, and reads what its creation is decided by. The guard is written
   * first: concurrent creates in a workspace, and its deletion, conflict on it. Until the transaction is over no other
   * adds to the usages read.
   */
  reserve(tx: MongoTransaction, sandbox: Sandbox, o: CreateOptions): Promise<Omit<CreateState, "isNameTaken">>;
  /** Subtracts a sandbox that has ended, and counts an attempt that has failed. */
  release(tx: MongoTransaction, sandbox: Sandbox): Promise<void>;
  /**
   * What all records of the sandbox's workspace count for, with that of this new one. They are counted anew at most once
   * a day, since an earlier version deletes some without subtracting them; else it is what was counted.
   */
  recountRecords(tx: MongoTransaction, sandbox: Sandbox, counted: number): Promise<number>;
  /** Subtracts deleted records. */
  releaseRecords(tx: MongoTransaction, deleted: readonly Pick<Sandbox, "workspaceId" | "recordBytes">[]): Promise<void>;
}

/** The fields of a guard with this quota owner, in an aggregation: a later one stays. */
function ownedBy({ userId, since }: QuotaOwner) {
  const isLater = { $lt: [{ $ifNull: ["$chargedSince", 0] }, since] };
  return {
    chargedTo: { $cond: [isLater, { $literal: userId }, "$chargedTo"] },
    chargedSince: { $cond: [isLater, since, "$chargedSince"] },
  };
}

export function createQuotaOwners(db: Db): QuotaOwners & Usages {
  const guards = db.collection<SandboxGuardDocument>("guards");
  const userGuards = db.collection<UserGuardDocument>("user_guards");
  const turns = db.collection<InstallationTurns>("installation");

  async function sumOf({ session }: MongoTransaction, which: Pick<SandboxGuardDocument, "chargedTo">): Promise<Usage> {
    const [all] = await guards
      .aggregate<Usage>(
        [
          { $match: { ...which, liveCount: { $gt: 0 } } },
          { $group: { _id: null, sandboxes: { $sum: "$liveCount" }, memoryMb: { $sum: "$liveMemoryMb" } } },
        ],
        { session },
      )
      .toArray();
    return all ?? { sandboxes: 0, memoryMb: 0 };
  }

  async function readOfUser(tx: MongoTransaction, userId: string): Promise<Usage> {
    const turn = { $inc: { creates: 1 }, $set: { expiresAt: addMs(new Date(), userGuardKeptMs) } };
    await userGuards.updateOne({ _id: userId }, turn, { upsert: true, session: tx.session });
    return sumOf(tx, { chargedTo: userId });
  }

  async function readOfAll(tx: MongoTransaction): Promise<Usage> {
    await turns.updateOne({ _id: "turns" }, { $inc: { creates: 1 } }, { upsert: true, session: tx.session });
    return sumOf(tx, {});
  }

  return {
    async assign(workspaceId, owner) {
      await guards.updateOne({ _id: workspaceId }, [{ $set: ownedBy(owner) }], { upsert: true });
    },

    async reserve(tx, { workspaceId, image, recordBytes = 0 }, { quotaOwner, quotas }) {
      const guard = await guards.findOneAndUpdate(
        { _id: workspaceId },
        [
          {
            $set: {
              liveCount: { $add: [{ $ifNull: ["$liveCount", 0] }, 1] },
              liveMemoryMb: { $add: [{ $ifNull: ["$liveMemoryMb", 0] }, image.memoryMb] },
              recordBytes: { $add: [{ $ifNull: ["$recordBytes", 0] }, recordBytes] },
              ...(quotaOwner && ownedBy(quotaOwner)),
            },
          },
        ],
        { upsert: true, returnDocument: "after", session: tx.session },
      );
      const workspace = { sandboxes: guard?.liveCount ?? 0, memoryMb: guard?.liveMemoryMb ?? 0 };
      return {
        isWorkspaceDeleted: guard?.deletedAt !== undefined,
        workspace,
        recordBytes: guard?.recordBytes ?? 0,
        failures: guard?.failures,
        user:
          guard?.chargedTo && isUsageNeeded("user", quotas, workspace)
            ? await readOfUser(tx, guard.chargedTo)
            : undefined,
        installation: isUsageNeeded("installation", quotas, workspace) ? await readOfAll(tx) : undefined,
      };
    },

    async release({ session }, sandbox) {
      const { workspaceId, image, updatedAt } = sandbox;
      const freed = { liveCount: -1, liveMemoryMb: -image.memoryMb };
      const guard = await guards.findOneAndUpdate({ _id: workspaceId }, { $inc: freed }, { session });
      if (!isFailedAttempt(sandbox)) return;
      const failures = countFailure(guard?.failures, updatedAt);
      await guards.updateOne({ _id: workspaceId }, { $set: { failures } }, { session });
    },

    async recountRecords({ session }, { workspaceId, recordBytes: added = 0 }, counted) {
      const now = new Date();
      const recent = { _id: workspaceId, recountedAt: { $gt: addMs(now, -dayMs) } };
      if (await guards.findOne(recent, { session, projection: { _id: 1 } })) return counted;
      const [all] = await db
        .collection<Sandbox>("sandboxes")
        .aggregate<{ bytes: number }>(
          [{ $match: { workspaceId } }, { $group: { _id: null, bytes: { $sum: "$recordBytes" } } }],
          { session },
        )
        .toArray();
      const recordBytes = (all?.bytes ?? 0) + added;
      await guards.updateOne({ _id: workspaceId }, { $set: { recordBytes, recountedAt: now } }, { session });
      return recordBytes;
    },

    async releaseRecords({ session }, deleted) {
      const freed = new Map<string, number>();
      for (const { workspaceId, recordBytes = 0 } of deleted) {
        freed.set(workspaceId, (freed.get(workspaceId) ?? 0) + recordBytes);
      }
      for (const [workspaceId, bytes] of freed) {
        if (bytes > 0) await guards.updateOne({ _id: workspaceId }, { $inc: { recordBytes: -bytes } }, { session });
      }
    },
  };
}
