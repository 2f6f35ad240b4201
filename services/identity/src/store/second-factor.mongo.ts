import { addMs } from "@sandgate/kit/base/time";
import { createCollections, type Db, type MongoDatabase, type MongoTransaction } from "@sandgate/kit/storage/mongo";
import { refusedUntil } from "../domain/otp-attempts.ts";
import { keptMs } from "../domain/retention.ts";
import type { SecondFactorStore } from "./second-factor.ts";
import type { NewMail } from "./store.ts";

interface SecondFactorDocument {
  _id: string;
  userId: string;
  sealed: Uint8Array;
  /** Until when it is pending. */
  expiresAt?: number;
  /** Since when it is enabled. */
  enabledAt?: number;
  /** Of the last code that was accepted. */
  lastStep: number;
  recoveryCodes: Uint8Array[];
  attempts: number;
  refusedUntil?: number;
  /** MongoDB removes the document then. */
  removeAt?: Date;
}

/** A step of a migration. */
export const createSecondFactorCollection = (db: Db) =>
  createCollections(db, {
    second_factors: [
      { name: "by_user", key: { userId: 1 }, unique: true },
      { name: "removal", key: { removeAt: 1 }, expireAfterSeconds: 0 },
    ],
  });

const enabled = { enabledAt: { $exists: true } } as const;
const noAttempts = { $unset: { refusedUntil: true } } as const;

/** The part of the store that second factors use, and what the rest needs of it. */
export function createSecondFactorStore(
  { db, write }: MongoDatabase,
  o: {
    addMail(tx: MongoTransaction, userId: string, mail: NewMail, now: Date): Promise<void>;
    /** Ends the user's sessions, and returns their ids. */
    endSessions(tx: MongoTransaction, userId: string, now: Date): Promise<string[]>;
  },
): SecondFactorStore & { deleteSecondFactor(tx: MongoTransaction, userId: string): Promise<void> } {
  const factors = db.collection<SecondFactorDocument>("second_factors");
  const sessions = db.collection<{ _id: string; userId: string; secondFactor?: boolean }>("sessions");

  return {
    async deleteSecondFactor({ session }, userId) {
      await factors.deleteMany({ userId }, { session });
    },

    async findSecondFactor(userId) {
      const found = await factors.findOne({ userId, ...enabled }, { projection: { recoveryCodes: 1 } });
      return found ? { recoveryCodesLeft: found.recoveryCodes.length } : undefined;
    },

    addSecondFactor: ({ id, userId, sealed, expiresAt }) =>
      write(async ({ session }) => {
        if (await factors.findOne({ userId, ...enabled }, { session, projection: { _id: 1 } })) return false;
        await factors.deleteOne({ userId }, { session });
        await factors.insertOne(
          {
            _id: id,
            userId,
            sealed,
            expiresAt: expiresAt.getTime(),
            lastStep: 0,
            recoveryCodes: [],
            attempts: 0,
            removeAt: addMs(expiresAt, keptMs.pendingSecondFactors),
          },
          { session },
        );
        return true;
      }),

    async findPendingSecondFactor(userId, now) {
      const found = await factors.findOne({ userId, expiresAt: { $gt: now.getTime() } });
      return found ? { id: found._id, sealed: new Uint8Array(found.sealed) } : undefined;
    },

    enableSecondFactor: ({ id, userId, step, recoveryCodeHashes, noticeMail, events }, now) =>
      write(async (tx) => {
        const confirmed = await factors.updateOne(
          { _id: id, userId, expiresAt: { $gt: now.getTime() } },
          {
            $set: { enabledAt: now.getTime(), lastStep: step, recoveryCodes: [...recoveryCodeHashes] },
            $unset: { expiresAt: true, removeAt: true },
          },
          { session: tx.session },
        );
        if (confirmed.matchedCount === 0) return false;
        await o.addMail(tx, userId, noticeMail, now);
        await tx.publish(events);
        return true;
      }),

    // Attempts at once conflict on the document, so each sees the number of those before it.
    beginOtpAttempt: (userId, now) =>
      write(async ({ session }) => {
        const found = await factors.findOne({ userId, ...enabled }, { session });
        if (!found) return { outcome: "none" };
        if (found.refusedUntil !== undefined && found.refusedUntil > now.getTime()) {
          return { outcome: "refused", until: new Date(found.refusedUntil) };
        }
        const attempts = found.attempts + 1;
        const until = refusedUntil(attempts, now);
        await factors.updateOne(
          { _id: found._id },
          { $set: { attempts, ...(until && { refusedUntil: until.getTime() }) } },
          { session },
        );
        return { outcome: "counted", factor: { id: found._id, sealed: new Uint8Array(found.sealed) } };
      }),

    async acceptOtp(factorId, step) {
      const accepted = await factors.updateOne(
        { _id: factorId, lastStep: { $lt: step }, ...enabled },
        { $set: { lastStep: step, attempts: 0 }, ...noAttempts },
      );
      return accepted.matchedCount > 0;
    },

    useRecoveryCode: ({ userId, factorId, codeHash, noticeMail, events }, now) =>
      write(async (tx) => {
        const used = await factors.updateOne(
          { _id: factorId, userId, recoveryCodes: codeHash },
          { $pull: { recoveryCodes: codeHash }, $set: { attempts: 0 }, ...noAttempts },
          { session: tx.session },
        );
        if (used.matchedCount === 0) return false;
        await o.addMail(tx, userId, noticeMail, now);
        await tx.publish(events);
        return true;
      }),

    replaceRecoveryCodes: (userId, codeHashes, events) =>
      write(async (tx) => {
        const recoveryCodes = [...codeHashes];
        const { session } = tx;
        const replaced = await factors.updateOne({ userId, ...enabled }, { $set: { recoveryCodes } }, { session });
        if (replaced.matchedCount === 0) return false;
        await tx.publish(events);
        return true;
      }),

    removeSecondFactor: (userId, { noticeMail, endSessions, events }, now) =>
      write(async (tx) => {
        const removed = await factors.deleteOne({ userId, ...enabled }, { session: tx.session });
        if (removed.deletedCount === 0) return undefined;
        await sessions.updateMany(
          { userId, secondFactor: true },
          { $unset: { secondFactor: true } },
          { session: tx.session },
        );
        await o.addMail(tx, userId, noticeMail, now);
        await tx.publish(events);
        return endSessions ? o.endSessions(tx, userId, now) : [];
      }),
  };
}
