import type { MongoDatabase, MongoTransaction } from "@sandgate/kit/storage/mongo";
import { decideRegistration, isAbandoned, type NewVerification } from "../domain/registrations.ts";
import { type Collections, collectionsOf } from "./collections.mongo.ts";
import { removeAt } from "./expiry.mongo.ts";
import { addMail } from "./mails.mongo.ts";
import { conflictWithPassword, setPassword } from "./passwords.mongo.ts";
import type { Registrations } from "./registrations.ts";
import { deleteUser, insertUser, markVerified, readAccount } from "./users.mongo.ts";

async function addVerification(
  collections: Collections,
  tx: MongoTransaction,
  userId: string,
  { tokenHash, expiresAt, mail }: NewVerification,
  now: Date,
): Promise<void> {
  await collections.verifications.insertOne(
    { _id: tokenHash, userId, expiresAt: expiresAt.getTime(), removeAt: removeAt("verifications", expiresAt) },
    { session: tx.session },
  );
  await addMail(collections, tx, userId, mail, now);
}

export function createRegistrations({ db, write }: MongoDatabase): Registrations {
  const collections = collectionsOf(db);
  const { users, verifications } = collections;

  const readVerification = (tokenHash: Uint8Array, now: Date, tx?: MongoTransaction) =>
    verifications.findOne({ _id: tokenHash, expiresAt: { $gt: now.getTime() } }, tx && { session: tx.session });

  return {
    register: (registration) =>
      write(async (tx) => {
        const { createdAt } = registration;
        const holder = (await readAccount(collections, { usernameKey: registration.usernameKey }, tx))?.user;
        const { outcome, userId, created, verification, notice, events } = decideRegistration(holder, registration);
        if (created) await insertUser(collections, tx, created);
        else await conflictWithPassword(collections, tx, userId);
        if (verification) await addVerification(collections, tx, userId, verification, createdAt);
        if (notice) await addMail(collections, tx, userId, notice, createdAt);
        await tx.publish(events);
        return outcome;
      }),

    renew: (userId, verification, now) =>
      write(async (tx) => {
        const account = await readAccount(collections, { id: userId }, tx);
        if (!account || account.user.verified) return false;
        await conflictWithPassword(collections, tx, userId);
        await addVerification(collections, tx, userId, verification, now);
        return true;
      }),

    async findVerification(tokenHash, now) {
      const link = await readVerification(tokenHash, now);
      const account = link && (await readAccount(collections, { id: link.userId }));
      return account ? { userId: account.user.id, username: account.user.username } : undefined;
    },

    verify: (tokenHash, passwordHash, now, events) =>
      write(async (tx) => {
        const link = await readVerification(tokenHash, now, tx);
        if (!link) return undefined;
        await markVerified(collections, tx, link.userId, now);
        await tx.publish(events);
        return setPassword(collections, tx, link.userId, passwordHash, now);
      }),

    async listAbandoned(registeredBefore, now, limit) {
      const found = await users
        .aggregate<{ _id: string }>([
          // Null matches what was never set too, by an index. An index does not help with $exists.
          { $match: { verifiedAt: null, createdAt: { $lt: registeredBefore.getTime() } } },
          { $sort: { createdAt: 1 } },
          {
            $lookup: {
              from: "verifications",
              let: { user: "$_id" },
              pipeline: [
                { $match: { $expr: { $eq: ["$userId", "$$user"] }, expiresAt: { $gt: now.getTime() } } },
                { $limit: 1 },
              ],
              as: "links",
            },
          },
          { $match: { links: [] } },
          { $limit: limit },
          { $project: { _id: 1 } },
        ])
        .toArray();
      return found.map(({ _id }) => _id);
    },

    deleteAbandoned: (userId, events, now) =>
      write(async (tx) => {
        const account = await readAccount(collections, { id: userId }, tx);
        const working = { userId, expiresAt: { $gt: now.getTime() } };
        const link = await verifications.findOne(working, { session: tx.session });
        if (!account || !isAbandoned(account.user, link !== null)) return false;
        return Array.isArray(await deleteUser(collections, tx, userId, events, now));
      }),
  };
}
