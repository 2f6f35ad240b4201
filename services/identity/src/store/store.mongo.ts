import type { StagedEvent } from "@sandgate/kit/events/outbox";
import {
  afterPosition,
  createCollections,
  type MongoDatabase,
  type MongoMigration,
  type MongoTransaction,
  openMongo,
} from "@sandgate/kit/storage/mongo";
import { type MongoStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import type { SealedColumn } from "@sandgate/kit/storage/sealed-values";
import type { User } from "../domain/users.ts";
import { createApiTokenStore } from "./api-tokens.mongo.ts";
import { createKeyStore } from "./keys.mongo.ts";
import { createLimitStore, type KnownNetworkDocument, limitMigration } from "./limits.mongo.ts";
import { createMailStore } from "./mails.mongo.ts";
import { type Expiring, letExpire, removeAt, setMissingRemovals } from "./removal.mongo.ts";
import { createSecondFactorCollection, createSecondFactorStore } from "./second-factor.mongo.ts";
import { createSessionStore } from "./sessions.mongo.ts";
import { createSharedLimitStore } from "./shared-limits.mongo.ts";
import { createSsoCollections, createSsoStore } from "./sso.mongo.ts";
import type { IdentityStore, NewVerification } from "./store.ts";

interface UserDocument {
  _id: string;
  username: string;
  usernameKey: string;
  passwordHash?: string;
  verifiedAt?: number;
  operator: boolean;
  disabledAt?: number;
  version: number;
  createdAt: number;
  /** Grows with every link mailed to the user, so that adding one conflicts with a password that ends all links. */
  mails?: number;
}

interface VerificationDocument extends Expiring {
  _id: Uint8Array;
  userId: string;
  passwordHash?: string;
  expiresAt: number;
}

interface PasswordResetDocument extends Expiring {
  _id: Uint8Array;
  userId: string;
  expiresAt: number;
}

/** Transactions of which only one may succeed conflict on the document of their name. */
interface TurnDocument {
  _id: string;
  taken: number;
}

export const migrations: readonly MongoMigration[] = [
  {
    name: "identity 1: users, verifications, sessions, refresh_tokens, api_tokens, keys, mails, request_windows, turns",
    run: (db) =>
      createCollections(db, {
        users: [
          { name: "name", key: { usernameKey: 1 }, unique: true },
          { name: "operators", key: { operator: 1 }, partialFilterExpression: { operator: true } },
        ],
        verifications: [
          { name: "by_user", key: { userId: 1 } },
          { name: "expiry", key: { expiresAt: 1 } },
        ],
        sessions: [
          { name: "idle", key: { idleAt: 1 } },
          { name: "ended", key: { endedAt: 1 }, partialFilterExpression: { endedAt: { $exists: true } } },
        ],
        refresh_tokens: [{ name: "expiry", key: { expiresAt: 1 } }],
        api_tokens: [
          { name: "token", key: { tokenHash: 1 }, unique: true },
          { name: "newest", key: { userId: 1, createdAt: -1, _id: -1 } },
          { name: "expiry", key: { expiresAt: 1 }, partialFilterExpression: { expiresAt: { $exists: true } } },
        ],
        keys: [{ name: "newest", key: { createdAt: -1, _id: -1 } }],
        mails: [
          { name: "by_user", key: { userId: 1, createdAt: 1 } },
          { name: "due", key: { dueAt: 1, _id: 1 } },
          { name: "age", key: { createdAt: 1 } },
        ],
        request_windows: [{ name: "end", key: { endsAt: 1 } }],
        turns: [],
      }),
  },
  { name: "identity 2: removal of what has expired", expands: true, run: letExpire },
  {
    name: "identity 3: password_resets, sessions of a user, lists of users",
    expands: true,
    run: (db) =>
      createCollections(db, {
        password_resets: [
          { name: "by_user", key: { userId: 1 } },
          { name: "removal", key: { removeAt: 1 }, expireAfterSeconds: 0 },
        ],
        sessions: [{ name: "newest", key: { userId: 1, createdAt: -1, _id: -1 } }],
        users: [
          { name: "newest", key: { createdAt: -1, _id: -1 } },
          { name: "unverified", key: { verifiedAt: 1, createdAt: 1 } },
        ],
      }),
  },
  {
    name: "identity 4: slots that facades hold",
    expands: true,
    run: (db) =>
      createCollections(db, { held_slots: [{ name: "removal", key: { removeAt: 1 }, expireAfterSeconds: 0 }] }),
  },
  { name: "identity 5: sso_attempts, external_identities", expands: true, run: createSsoCollections },
  limitMigration,
  { name: "identity: second_factors", expands: true, run: createSecondFactorCollection },
];

const sealedColumns: readonly SealedColumn[] = [
  { table: "keys", column: "sealed" },
  { table: "mails", column: "sealed" },
  { table: "second_factors", column: "sealed" },
];

/** Opens the service's database on a replica set, creating and migrating it as needed. */
export async function openMongoStore(options: MongoStoreOptions): Promise<IdentityStore> {
  const database = await openMongo({ ...options, migrations });
  return createMongoStore(database);
}

/** The store on a database that has had its migrations. */
export function createMongoStore(database: MongoDatabase): IdentityStore {
  const { db, write } = database;
  const users = db.collection<UserDocument>("users");
  const verifications = db.collection<VerificationDocument>("verifications");
  const passwordResets = db.collection<PasswordResetDocument>("password_resets");
  const knownNetworks = db.collection<KnownNetworkDocument>("known_networks");
  const turns = db.collection<TurnDocument>("turns");

  const { addMail, deleteMails, ...mails } = createMailStore(database);
  const { endSessions, endAllSessions, ...sessions } = createSessionStore(database);
  const { unlinkUser, ...sso } = createSsoStore(database, {
    addMail,
    removePassword: (tx, userId, now) => setPassword(tx, userId, undefined, now),
  });
  const { deleteSecondFactor, ...secondFactors } = createSecondFactorStore(database, {
    addMail,
    endSessions: (tx, userId, now) => endSessions(tx, userId, undefined, now),
  });
  const { deleteApiTokens, ...apiTokens } = createApiTokenStore(database, {
    hasSecondFactor: async (userId) => (await secondFactors.findSecondFactor(userId)) !== undefined,
  });

  /** Makes this transaction conflict with every other one of that name. */
  async function conflictAs({ session }: MongoTransaction, name: string): Promise<void> {
    await turns.updateOne({ _id: name }, { $inc: { taken: 1 } }, { upsert: true, session });
  }

  /** Makes this transaction conflict with one that sets the user's password. */
  async function conflictWithPassword({ session }: MongoTransaction, userId: string): Promise<void> {
    await users.updateOne({ _id: userId }, { $inc: { mails: 1 } }, { session });
  }

  async function addVerification(
    tx: MongoTransaction,
    userId: string,
    passwordHash: string | undefined,
    { tokenHash, expiresAt, mail }: NewVerification,
    now: Date,
  ): Promise<void> {
    await verifications.insertOne(
      {
        _id: tokenHash,
        userId,
        expiresAt: expiresAt.getTime(),
        removeAt: removeAt("verifications", expiresAt),
        ...(passwordHash !== undefined && { passwordHash }),
      },
      { session: tx.session },
    );
    await addMail(tx, userId, mail, now);
  }

  /** Sets a password, or none, and ends all links and sessions of the user but one, and returns the ids of those that it ended. */
  async function setPassword(
    tx: MongoTransaction,
    userId: string,
    passwordHash: string | undefined,
    now: Date,
    keptSession?: string,
  ): Promise<string[]> {
    const { session } = tx;
    const change = passwordHash === undefined ? { $unset: { passwordHash: 1 as const } } : { $set: { passwordHash } };
    await users.updateOne({ _id: userId }, change, { session });
    await verifications.deleteMany({ userId }, { session });
    await passwordResets.deleteMany({ userId }, { session });
    await knownNetworks.deleteMany({ userId }, { session });
    return endSessions(tx, userId, keptSession, now);
  }

  /** Deletes a user with all that belongs to it, and returns the ids of the sessions that it ended. */
  async function deleteUser(
    tx: MongoTransaction,
    userId: string,
    events: readonly StagedEvent[],
    now: Date,
  ): Promise<string[]> {
    const { session } = tx;
    await verifications.deleteMany({ userId }, { session });
    await passwordResets.deleteMany({ userId }, { session });
    await knownNetworks.deleteMany({ userId }, { session });
    await deleteApiTokens(tx, userId);
    await deleteMails(tx, userId);
    await unlinkUser(tx, userId);
    await deleteSecondFactor(tx, userId);
    await users.deleteOne({ _id: userId }, { session });
    await tx.publish(events);
    return endSessions(tx, userId, undefined, now);
  }

  return {
    ...serviceStoreOf(database, sealedColumns),
    ...sessions,
    ...apiTokens,
    ...createKeyStore(database, { conflictAs, endAllSessions }),
    ...mails,
    ...createSharedLimitStore(db),
    ...createLimitStore(db),
    ...sso,
    ...secondFactors,

    registerUser: (registration) =>
      write(async (tx) => {
        const { session } = tx;
        const { id, username, usernameKey, passwordHash, createdAt, mails: given } = registration;
        const holder = await users.findOne({ usernameKey }, { session });
        if (!holder) {
          await users.insertOne(
            {
              _id: id,
              username,
              usernameKey,
              passwordHash,
              operator: false,
              version: 1,
              createdAt: createdAt.getTime(),
            },
            { session },
          );
          if (given) await addVerification(tx, id, passwordHash, given.verification, createdAt);
          await tx.publish(registration.events);
          return "created";
        }
        const outcome = holder.verifiedAt === undefined ? "renewed" : "taken";
        await conflictWithPassword(tx, holder._id);
        if (given && outcome === "taken") await addMail(tx, holder._id, given.notice, createdAt);
        else if (given) await addVerification(tx, holder._id, passwordHash, given.verification, createdAt);
        return outcome;
      }),

    renewVerification: (userId, verification, now) =>
      write(async (tx) => {
        const user = await users.findOne({ _id: userId }, { session: tx.session });
        if (!user || user.verifiedAt !== undefined) return false;
        await conflictWithPassword(tx, userId);
        await addVerification(tx, user._id, undefined, verification, now);
        return true;
      }),

    async findVerification(tokenHash, now) {
      const verification = await verifications.findOne({ _id: tokenHash, expiresAt: { $gt: now.getTime() } });
      const user = verification && (await users.findOne({ _id: verification.userId }));
      if (!user) return undefined;
      return { userId: user._id, username: user.username, hasPassword: verification.passwordHash !== undefined };
    },

    verifyEmail: (tokenHash, given, now, events) =>
      write(async (tx) => {
        const { session } = tx;
        const verification = await verifications.findOne(
          { _id: tokenHash, expiresAt: { $gt: now.getTime() } },
          { session },
        );
        const passwordHash = given ?? verification?.passwordHash;
        if (!verification || passwordHash === undefined) return undefined;
        const { userId } = verification;
        await users.updateOne(
          { _id: userId },
          { $set: { verifiedAt: now.getTime() }, $inc: { version: 1 } },
          { session },
        );
        await tx.publish(events);
        return setPassword(tx, userId, passwordHash, now);
      }),

    addPasswordReset: (userId, { tokenHash, expiresAt, mail }, now) =>
      write(async (tx) => {
        const { session } = tx;
        const user = await users.findOne({ _id: userId }, { session });
        if (user?.verifiedAt === undefined) return false;
        await conflictWithPassword(tx, userId);
        await passwordResets.insertOne(
          {
            _id: tokenHash,
            userId,
            expiresAt: expiresAt.getTime(),
            removeAt: removeAt("passwordResets", expiresAt),
          },
          { session },
        );
        await addMail(tx, userId, mail, now);
        return true;
      }),

    async findPasswordReset(tokenHash, now) {
      const reset = await passwordResets.findOne({ _id: tokenHash, expiresAt: { $gt: now.getTime() } });
      const user = reset && (await users.findOne({ _id: reset.userId }));
      return user ? { userId: user._id, username: user.username } : undefined;
    },

    resetPassword: (tokenHash, { passwordHash, noticeMail, events }, now) =>
      write(async (tx) => {
        const reset = await passwordResets.findOne(
          { _id: tokenHash, expiresAt: { $gt: now.getTime() } },
          { session: tx.session },
        );
        if (!reset) return undefined;
        await addMail(tx, reset.userId, noticeMail, now);
        await tx.publish(events);
        return setPassword(tx, reset.userId, passwordHash, now);
      }),

    changePassword: ({ id, currentHash, sessionId }, { passwordHash, noticeMail, events }, now) =>
      write(async (tx) => {
        const user = await users.findOne({ _id: id, passwordHash: currentHash }, { session: tx.session });
        if (!user) return undefined;
        await addMail(tx, id, noticeMail, now);
        await tx.publish(events);
        return setPassword(tx, id, passwordHash, now, sessionId);
      }),

    createFirstOperator: (operator) =>
      write(async (tx) => {
        const { session } = tx;
        if (await users.findOne({ operator: true }, { session, projection: { _id: 1 } })) return false;
        await conflictAs(tx, "first operator");
        const { id, username, usernameKey, passwordHash, createdAt } = operator;
        await users.insertOne(
          {
            _id: id,
            username,
            usernameKey,
            passwordHash,
            verifiedAt: createdAt.getTime(),
            operator: true,
            version: 1,
            createdAt: createdAt.getTime(),
          },
          { session },
        );
        await tx.publish(operator.events);
        return true;
      }),

    async hasOperator() {
      return (await users.findOne({ operator: true }, { projection: { _id: 1 } })) !== null;
    },

    async findSignIn(who) {
      const found = await users.findOne("id" in who ? { _id: who.id } : who);
      return found ? { user: toUser(found), passwordHash: found.passwordHash } : undefined;
    },

    async findUsers(ids, usernameKeys) {
      const found = await users
        .find({ $or: [{ _id: { $in: [...ids] } }, { usernameKey: { $in: [...usernameKeys] } }] })
        .toArray();
      return found.map(toUser);
    },

    async listUsers(usernameKey, limit, before) {
      const last = before && { createdAt: before.createdAt.getTime(), _id: before.id };
      const found = await users
        .find({ ...(usernameKey !== undefined && { usernameKey }), ...afterPosition<UserDocument>(last) })
        // A name is one user's, whom the index of names finds.
        .sort(usernameKey === undefined ? { createdAt: -1, _id: -1 } : {})
        .limit(limit)
        .toArray();
      return found.map(toUser);
    },

    setUserDisabled: (userId, disabled, now, events) =>
      write(async (tx) => {
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
        const endedSessionIds = disabled ? await endSessions(tx, userId, undefined, now) : [];
        return { user: toUser(found), endedSessionIds };
      }),

    deleteUser: (userId, events, now) =>
      write(async (tx) => {
        const user = await users.findOne({ _id: userId }, { session: tx.session });
        if (!user) return undefined;
        if (user.operator) {
          await conflictAs(tx, "operators");
          if ((await users.countDocuments({ operator: true }, { session: tx.session })) < 2) return "last_operator";
        }
        return deleteUser(tx, userId, events, now);
      }),

    async listUnverified(registeredBefore, now, limit) {
      const found = await users
        .aggregate<{ _id: string }>([
          // As null also what was never set, which an index on $exists would not find.
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

    deleteUnverified: (userId, events, now) =>
      write(async (tx) => {
        const { session } = tx;
        const user = await users.findOne({ _id: userId, verifiedAt: { $exists: false } }, { session });
        const link = await verifications.findOne({ userId, expiresAt: { $gt: now.getTime() } }, { session });
        if (!user || link) return false;
        await deleteUser(tx, userId, events, now);
        return true;
      }),

    async sweep() {
      await setMissingRemovals(db);
      return 0;
    },
  };
}

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
