import type { StagedEvent } from "@sandgate/kit/events/outbox";
import { afterPosition, type MongoDatabase, type MongoTransaction } from "@sandgate/kit/storage/mongo";
import { type Account, isLastOperator, type NewUser, type User } from "../domain/users.ts";
import { type Collections, collectionsOf, takeTurn, type UserDocument } from "./collections.mongo.ts";
import { endSessionsOf } from "./sessions.mongo.ts";
import type { Users } from "./users.ts";

function toUser({ _id, username, verifiedAt, operator, disabledAt, createdAt }: UserDocument): User {
  return {
    id: _id,
    username,
    verified: verifiedAt !== undefined,
    operator,
    disabled: disabledAt !== undefined,
    createdAt: new Date(createdAt),
  };
}

export async function readAccount(
  { users }: Collections,
  who: { id: string } | { usernameKey: string },
  tx?: MongoTransaction,
): Promise<Account | undefined> {
  const filter = "id" in who ? { _id: who.id } : { usernameKey: who.usernameKey };
  const found = await users.findOne(filter, tx && { session: tx.session });
  return found ? { user: toUser(found), passwordHash: found.passwordHash } : undefined;
}

export async function insertUser(
  { users }: Collections,
  { session }: MongoTransaction,
  { id, verifiedAt, createdAt, ...user }: NewUser,
): Promise<void> {
  await users.insertOne(
    { ...user, _id: id, verifiedAt: verifiedAt?.getTime(), version: 1, createdAt: createdAt.getTime() },
    { session },
  );
}

export async function markVerified(
  { users }: Collections,
  { session }: MongoTransaction,
  userId: string,
  now: Date,
): Promise<void> {
  await users.updateOne({ _id: userId }, { $set: { verifiedAt: now.getTime() }, $inc: { version: 1 } }, { session });
}

async function isLast(collections: Collections, tx: MongoTransaction, user: User): Promise<boolean> {
  if (!user.operator) return false;
  await takeTurn(collections, tx, "operators");
  const other = await collections.users.findOne(
    { operator: true, disabledAt: { $exists: false }, _id: { $ne: user.id } },
    { session: tx.session, projection: { _id: 1 } },
  );
  return isLastOperator(user, other !== null);
}

export async function deleteUser(
  collections: Collections,
  tx: MongoTransaction,
  userId: string,
  events: readonly StagedEvent[],
  now: Date,
): Promise<string[] | "last_operator" | undefined> {
  const { users, ofUsers } = collections;
  const { session } = tx;
  const account = await readAccount(collections, { id: userId }, tx);
  if (!account) return undefined;
  if (await isLast(collections, tx, account.user)) return "last_operator";
  for (const collection of ofUsers) await collection.deleteMany({ userId }, { session });
  await users.deleteOne({ _id: userId }, { session });
  await tx.publish(events);
  return endSessionsOf(collections, tx, userId, now);
}

export function createUsers({ db, write }: MongoDatabase): Users {
  const collections = collectionsOf(db);
  const { users } = collections;

  return {
    createFirstOperator: ({ user, events }) =>
      write(async (tx) => {
        if (await users.findOne({ operator: true }, { session: tx.session, projection: { _id: 1 } })) return false;
        await takeTurn(collections, tx, "first operator");
        await insertUser(collections, tx, user);
        await tx.publish(events);
        return true;
      }),

    async hasOperator() {
      return (await users.findOne({ operator: true }, { projection: { _id: 1 } })) !== null;
    },

    findAccount: (who) => readAccount(collections, who),

    async find(ids, usernameKeys) {
      const found = await users
        .find({ $or: [{ _id: { $in: [...ids] } }, { usernameKey: { $in: [...usernameKeys] } }] })
        .toArray();
      return found.map(toUser);
    },

    async list(usernameKey, limit, before) {
      const last = before && { createdAt: before.createdAt.getTime(), _id: before.id };
      const found = await users
        .find({ ...(usernameKey !== undefined && { usernameKey }), ...afterPosition<UserDocument>(last) })
        // A name is one user's, whom the index of names finds.
        .sort(usernameKey === undefined ? { createdAt: -1, _id: -1 } : {})
        .limit(limit)
        .toArray();
      return found.map(toUser);
    },

    makeOperator: (userId, events) =>
      write(async (tx) => {
        const found = await users.findOneAndUpdate(
          { _id: userId, verifiedAt: { $exists: true }, disabledAt: { $exists: false } },
          { $set: { operator: true }, $inc: { version: 1 } },
          { session: tx.session, returnDocument: "after" },
        );
        if (!found) return undefined;
        await tx.publish(events);
        return toUser(found);
      }),

    setDisabled: (userId, disabled, now, events) =>
      write(async (tx) => {
        const account = await readAccount(collections, { id: userId }, tx);
        if (!account) return undefined;
        if (disabled && (await isLast(collections, tx, account.user))) return "last_operator";
        const disabledAt = { $ifNull: ["$disabledAt", now.getTime()] };
        const found = await users.findOneAndUpdate(
          { _id: userId },
          [
            { $set: { version: { $add: ["$version", 1] }, ...(disabled && { disabledAt }) } },
            ...(disabled ? [] : [{ $unset: "disabledAt" }]),
          ],
          { session: tx.session, returnDocument: "after" },
        );
        if (!found) return undefined;
        await tx.publish(events);
        return {
          user: toUser(found),
          endedSessionIds: disabled ? await endSessionsOf(collections, tx, userId, now) : [],
        };
      }),

    delete: (userId, events, now) => write((tx) => deleteUser(collections, tx, userId, events, now)),
  };
}
