import { toOptionalDate } from "@sandgate/kit/base/time";
import type { MongoDatabase } from "@sandgate/kit/storage/mongo";
import { decideOtpAttempt } from "../domain/otp-attempts.ts";
import type { OtpOrigin, SecondFactor } from "../domain/second-factors.ts";
import { collectionsOf } from "./collections.mongo.ts";
import { removeAt } from "./expiry.mongo.ts";
import { addMail } from "./mails.mongo.ts";
import type { OtpAttempts, SecondFactors } from "./second-factors.ts";
import { endSessionsOf } from "./sessions.mongo.ts";

const isEnabled = { enabledAt: { $exists: true } } as const;

/** The fields that count attempts from there. */
function countersOf({ fromOwnNetwork }: OtpOrigin) {
  return fromOwnNetwork
    ? ({ attempts: "attempts", until: "refusedUntil" } as const)
    : ({ attempts: "attemptsElsewhere", until: "refusedElsewhereUntil" } as const);
}

function noAttempts(origin: OtpOrigin) {
  const { attempts, until } = countersOf(origin);
  return { $set: { [attempts]: 0 }, $unset: { [until]: true as const } };
}

function toSecondFactor({ _id, sealed }: { _id: string; sealed: Uint8Array }): SecondFactor {
  return { id: _id, sealed: new Uint8Array(sealed) };
}

export function createSecondFactors({ db, write }: MongoDatabase): SecondFactors {
  const collections = collectionsOf(db);
  const { secondFactors: factors, sessions } = collections;

  return {
    async find(userId) {
      const found = await factors.findOne({ userId, ...isEnabled }, { projection: { recoveryCodes: 1 } });
      return found ? { recoveryCodesLeft: found.recoveryCodes.length } : undefined;
    },

    async findPending(userId, now) {
      const found = await factors.findOne({ userId, expiresAt: { $gt: now.getTime() } });
      return found ? toSecondFactor(found) : undefined;
    },

    add: ({ id, userId, sealed, expiresAt }) =>
      write(async ({ session }) => {
        if (await factors.findOne({ userId, ...isEnabled }, { session, projection: { _id: 1 } })) return false;
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
            removeAt: removeAt("pendingSecondFactors", expiresAt),
          },
          { session },
        );
        return true;
      }),

    enable: ({ id, userId, step, recoveryCodeHashes, noticeMail, events }, now) =>
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
        await addMail(collections, tx, userId, noticeMail, now);
        await tx.publish(events);
        return true;
      }),

    replaceRecoveryCodes: (userId, codeHashes, events) =>
      write(async (tx) => {
        const recoveryCodes = [...codeHashes];
        const { session } = tx;
        const replaced = await factors.updateOne({ userId, ...isEnabled }, { $set: { recoveryCodes } }, { session });
        if (replaced.matchedCount === 0) return false;
        await tx.publish(events);
        return true;
      }),

    remove: (userId, { noticeMail, endSessions, events }, now) =>
      write(async (tx) => {
        const { session } = tx;
        const removed = await factors.deleteOne({ userId, ...isEnabled }, { session });
        if (removed.deletedCount === 0) return undefined;
        await sessions.updateMany({ userId, secondFactor: true }, { $unset: { secondFactor: true } }, { session });
        await addMail(collections, tx, userId, noticeMail, now);
        await tx.publish(events);
        return endSessions ? endSessionsOf(collections, tx, userId, now) : [];
      }),
  };
}

export function createOtpAttempts({ db, write }: MongoDatabase): OtpAttempts {
  const collections = collectionsOf(db);
  const { secondFactors: factors } = collections;

  return {
    // Attempts at once conflict on the document, so each sees the number of those before it.
    begin: (userId, origin, now) =>
      write(async ({ session }) => {
        const counters = countersOf(origin);
        const found = await factors.findOne({ userId, ...isEnabled }, { session });
        const enabled = found && {
          factor: toSecondFactor(found),
          attempts: found[counters.attempts] ?? 0,
          refusedUntil: toOptionalDate(found[counters.until]),
        };
        const { attempt, change } = decideOtpAttempt(enabled ?? undefined, now);
        if (change) {
          const { attempts, refusedUntil: until } = change;
          const counted = { [counters.attempts]: attempts, ...(until && { [counters.until]: until.getTime() }) };
          await factors.updateOne({ userId, ...isEnabled }, { $set: counted }, { session });
        }
        return attempt;
      }),

    async acceptOtp(factorId, step, origin) {
      const { $set, $unset } = noAttempts(origin);
      const accepted = await factors.updateOne(
        { _id: factorId, lastStep: { $lt: step }, ...isEnabled },
        { $set: { ...$set, lastStep: step }, $unset },
      );
      return accepted.matchedCount > 0;
    },

    acceptRecoveryCode: ({ userId, factorId, codeHash, noticeMail, events, ...origin }, now) =>
      write(async (tx) => {
        const used = await factors.updateOne(
          { _id: factorId, userId, recoveryCodes: codeHash },
          { ...noAttempts(origin), $pull: { recoveryCodes: codeHash } },
          { session: tx.session },
        );
        if (used.matchedCount === 0) return false;
        await addMail(collections, tx, userId, noticeMail, now);
        await tx.publish(events);
        return true;
      }),
  };
}
