import type { MongoDatabase, MongoTransaction } from "@sandgate/kit/storage/mongo";
import type { PasswordChange } from "../domain/passwords.ts";
import { revokeApiTokensOf } from "./api-tokens.mongo.ts";
import { type Collections, collectionsOf } from "./collections.mongo.ts";
import { removeAt } from "./expiry.mongo.ts";
import { addMail } from "./mails.mongo.ts";
import type { Passwords } from "./passwords.ts";
import { endSessionsOf } from "./sessions.mongo.ts";
import { readAccount } from "./users.mongo.ts";

/** Makes this transaction conflict with one that sets the user's password. */
export async function conflictWithPassword(
  { users }: Collections,
  { session }: MongoTransaction,
  userId: string,
): Promise<void> {
  await users.updateOne({ _id: userId }, { $inc: { mails: 1 } }, { session });
}

/**
 * Sets a password, or none, ends all links and sessions of the user but one, drops a second factor that isn't
 * confirmed, and returns the ids of the sessions that it ended.
 */
export async function setPassword(
  collections: Collections,
  tx: MongoTransaction,
  userId: string,
  passwordHash: string | undefined,
  now: Date,
  keptSessionId?: string,
): Promise<string[]> {
  const { users, verifications, passwordResets, knownNetworks, secondFactors } = collections;
  const { session } = tx;
  const change = passwordHash === undefined ? { $unset: { passwordHash: 1 as const } } : { $set: { passwordHash } };
  await users.updateOne({ _id: userId }, change, { session });
  await verifications.deleteMany({ userId }, { session });
  await passwordResets.deleteMany({ userId }, { session });
  await knownNetworks.deleteMany({ userId }, { session });
  await secondFactors.deleteMany({ userId, enabledAt: { $exists: false } }, { session });
  return endSessionsOf(collections, tx, userId, now, keptSessionId);
}

export function createPasswords({ db, write }: MongoDatabase): Passwords {
  const collections = collectionsOf(db);
  const { passwordResets } = collections;

  const readReset = (tokenHash: Uint8Array, now: Date, tx?: MongoTransaction) =>
    passwordResets.findOne({ _id: tokenHash, expiresAt: { $gt: now.getTime() } }, tx && { session: tx.session });

  async function applyChange(
    tx: MongoTransaction,
    userId: string,
    { passwordHash, revokesApiTokens, noticeMail, events }: PasswordChange,
    now: Date,
    keptSessionId?: string,
  ): Promise<string[]> {
    await addMail(collections, tx, userId, noticeMail, now);
    await tx.publish(events);
    if (revokesApiTokens) await revokeApiTokensOf(collections, tx, userId);
    return setPassword(collections, tx, userId, passwordHash, now, keptSessionId);
  }

  return {
    addReset: (userId, { tokenHash, expiresAt, mail }, now) =>
      write(async (tx) => {
        const { session } = tx;
        if (!(await readAccount(collections, { id: userId }, tx))?.user.verified) return false;
        await conflictWithPassword(collections, tx, userId);
        const removal = { expiresAt: expiresAt.getTime(), removeAt: removeAt("passwordResets", expiresAt) };
        await passwordResets.insertOne({ _id: tokenHash, userId, ...removal }, { session });
        await addMail(collections, tx, userId, mail, now);
        return true;
      }),

    async findReset(tokenHash, now) {
      const reset = await readReset(tokenHash, now);
      const account = reset && (await readAccount(collections, { id: reset.userId }));
      return account ? { userId: account.user.id, username: account.user.username } : undefined;
    },

    reset: (tokenHash, change, now) =>
      write(async (tx) => {
        const reset = await readReset(tokenHash, now, tx);
        return reset ? applyChange(tx, reset.userId, change, now) : undefined;
      }),

    change: ({ id, currentHash, sessionId }, change, now) =>
      write(async (tx) => {
        const account = await readAccount(collections, { id }, tx);
        return account?.passwordHash === currentHash ? applyChange(tx, id, change, now, sessionId) : undefined;
      }),
  };
}
