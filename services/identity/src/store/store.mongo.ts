import { addMs, toOptionalDate } from "@sandgate/kit/base/time";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import {
  afterPlace,
  createCollections,
  type Db,
  isDuplicateKey,
  type MongoDatabase,
  type MongoMigration,
  type MongoTransaction,
  openMongo,
} from "@sandgate/kit/storage/mongo";
import { type MongoStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import type { SealedColumn } from "@sandgate/kit/storage/sealed-values";
import { Role } from "@sandgate/proto/common/v1/access";
import type { ApiToken } from "../domain/api-tokens.ts";
import { keptMs } from "../domain/retention.ts";
import { judgeRefresh, refreshTokenExpiry } from "../domain/sessions.ts";
import type { User } from "../domain/users.ts";
import { createLimitStore, type KnownNetworkDocument, limitMigration } from "./limits.mongo.ts";
import { createSecondFactorCollection, createSecondFactorStore } from "./second-factor.mongo.ts";
import { createSsoCollections, createSsoStore } from "./sso.mongo.ts";
import {
  type DueMail,
  type IdentityStore,
  type NewMail,
  type NewVerification,
  requestWindowMs,
  type SlotHold,
  type StoredKey,
  slotLeaseMs,
} from "./store.ts";

/** Fields of documents that are kept for a limited time. Times are stored as epoch milliseconds, but for this one. */
interface Expiring {
  /** MongoDB removes the document then. */
  removeAt?: Date;
}

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
  /** Grows with every new API token of the user: transactions that add one conflict on it, so that their number is right. */
  apiTokens?: number;
  /** Grows with every sign-in, so that one conflicts with a change of the password. */
  signIns?: number;
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

interface SessionDocument extends Expiring {
  _id: string;
  userId: string;
  createdAt: number;
  expiresAt: number;
  /** When its last refresh token expires. */
  idleAt: number;
  /** Grows with every refresh, so that a refresh conflicts with the end of the session. */
  refreshes?: number;
  /** Its sign-in or last refresh, and the client then. */
  seenAt?: number;
  address?: string;
  userAgent?: string;
  /** Set when it was signed in with a second factor that the user still has. */
  secondFactor?: boolean;
  endedAt?: number;
}

interface RefreshTokenDocument extends Expiring {
  _id: Uint8Array;
  sessionId: string;
  expiresAt: number;
  usedAt?: number;
}

interface ApiTokenDocument extends Expiring {
  _id: string;
  userId: string;
  tokenHash: Uint8Array;
  description: string;
  hint: string;
  workspaceId?: string | undefined;
  /** Unset by an earlier version. */
  role?: Role;
  expiresAt?: number | undefined;
  createdAt: number;
  lastUsedAt?: number;
}

interface KeyDocument extends Omit<StoredKey, "id" | "createdAt"> {
  _id: string;
  createdAt: number;
}

interface MailDocument extends Expiring {
  _id: string;
  userId: string;
  /** Unset once it was sent. */
  sealed?: Uint8Array;
  attempts: number;
  createdAt: number;
  /** Unset once it was sent. */
  dueAt?: number;
}

interface RequestWindowDocument extends Expiring {
  _id: Uint8Array;
  used: number;
  /** Of the last draw. */
  granted: number;
  endsAt: number;
}

interface HeldSlotsDocument extends Expiring {
  /** The key. */
  _id: Uint8Array;
  holders: { id: string; held: number; endsAt: number }[];
  /** By who wrote last. */
  held: number;
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

/** When a document of this kind is removed. */
const removeAt = (kind: keyof typeof keptMs, since: Date) => addMs(since, keptMs[kind]);
/** The same in an aggregation, for the time in a field; nothing where that is missing. */
const removeAfter = (kind: keyof typeof keptMs, since: unknown) => ({
  $cond: [{ $gt: [since, null] }, { $toDate: { $add: [since, keptMs[kind]] } }, "$$REMOVE"],
});

const isUnsent = { $gt: ["$dueAt", null] };
/** The collections whose documents are removed, when, and the index of the sweep that did it before MongoDB. */
const expiringCollections = [
  { name: "verifications", end: removeAfter("verifications", "$expiresAt"), swept: "expiry" },
  { name: "sessions", end: removeAfter("sessions", { $min: ["$idleAt", "$endedAt"] }), swept: "idle" },
  { name: "refresh_tokens", end: removeAfter("refreshTokens", "$expiresAt"), swept: "expiry" },
  { name: "api_tokens", end: removeAfter("apiTokens", "$expiresAt"), swept: "expiry" },
  {
    name: "mails",
    end: { $cond: [isUnsent, removeAfter("unsentMails", "$createdAt"), removeAfter("sentMails", "$createdAt")] },
    swept: "age",
  },
  { name: "request_windows", end: removeAfter("requestWindows", "$endsAt"), swept: "end" },
];

/** From here on MongoDB does what was a sweep, whose indexes go. */
async function letExpire(db: Db): Promise<void> {
  for (const { name, end, swept } of expiringCollections) {
    const collection = db.collection(name);
    await collection.updateMany({}, [{ $set: { removeAt: end } }], { hint: { _id: 1 } });
    await collection.createIndex({ removeAt: 1 }, { name: "removal", expireAfterSeconds: 0 });
    if (await collection.indexExists(swept)) await collection.dropIndex(swept);
  }
}

const collectionsOf = (db: Db) => ({
  users: db.collection<UserDocument>("users"),
  verifications: db.collection<VerificationDocument>("verifications"),
  passwordResets: db.collection<PasswordResetDocument>("password_resets"),
  sessions: db.collection<SessionDocument>("sessions"),
  refreshTokens: db.collection<RefreshTokenDocument>("refresh_tokens"),
  apiTokens: db.collection<ApiTokenDocument>("api_tokens"),
  keys: db.collection<KeyDocument>("keys"),
  mails: db.collection<MailDocument>("mails"),
  requestWindows: db.collection<RequestWindowDocument>("request_windows"),
  heldSlots: db.collection<HeldSlotsDocument>("held_slots"),
  knownNetworks: db.collection<KnownNetworkDocument>("known_networks"),
  turns: db.collection<TurnDocument>("turns"),
});

/** Opens the service's database on a replica set, creating and migrating it as needed. */
export async function openMongoStore(options: MongoStoreOptions): Promise<IdentityStore> {
  const database = await openMongo({ ...options, migrations });
  return createMongoStore(database);
}

/** The store on a database that has had its migrations. */
export function createMongoStore(database: MongoDatabase): IdentityStore {
  const { db, write } = database;
  const {
    users,
    verifications,
    passwordResets,
    sessions,
    refreshTokens,
    apiTokens,
    keys,
    mails,
    requestWindows,
    heldSlots,
    knownNetworks,
    turns,
  } = collectionsOf(db);

  /** Makes this transaction conflict with every other one of that name. */
  async function conflictAs({ session }: MongoTransaction, name: string): Promise<void> {
    await turns.updateOne({ _id: name }, { $inc: { taken: 1 } }, { upsert: true, session });
  }

  /** Makes this transaction conflict with one that sets the user's password. */
  async function conflictWithPassword({ session }: MongoTransaction, userId: string): Promise<void> {
    await users.updateOne({ _id: userId }, { $inc: { mails: 1 } }, { session });
  }

  async function addMail({ session }: MongoTransaction, userId: string, mail: NewMail, now: Date): Promise<void> {
    const { id, sealed } = mail;
    await mails.insertOne(
      {
        _id: id,
        userId,
        sealed,
        attempts: 0,
        createdAt: now.getTime(),
        dueAt: now.getTime(),
        removeAt: removeAt("unsentMails", now),
      },
      { session },
    );
  }

  async function holdSlots(holder: string, { key, limit, used, wanted }: SlotHold, now: Date): Promise<number> {
    const isAnothers = { $and: [{ $ne: ["$$this.id", holder] }, { $gt: ["$$this.endsAt", now.getTime()] }] };
    const others = { $filter: { input: { $ifNull: ["$holders", []] }, as: "this", cond: isAnothers } };
    const left = { $subtract: [limit, { $sum: "$holders.held" }] };
    const own = { id: holder, held: "$held", endsAt: now.getTime() + slotLeaseMs };
    const hold = () =>
      heldSlots.findOneAndUpdate(
        { _id: key },
        [
          { $set: { holders: others, removeAt: removeAt("heldSlots", addMs(now, slotLeaseMs)) } },
          { $set: { held: { $max: [used, { $min: [wanted, left] }] } } },
          { $set: { holders: { $concatArrays: ["$holders", { $cond: [{ $gt: ["$held", 0] }, [own], []] }] } } },
        ],
        { upsert: true, returnDocument: "after" },
      );
    // Of two first holds of a key at once, the later one finds the document when it is tried again.
    const found = await hold().catch((error: unknown) => (isDuplicateKey(error) ? hold() : Promise.reject(error)));
    if (!found) throw new Error("an upsert returned no document");
    return found.held;
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

  async function addRefreshToken(
    { session }: MongoTransaction,
    tokenHash: Uint8Array,
    sessionId: string,
    expiresAt: Date,
  ): Promise<void> {
    await refreshTokens.insertOne(
      { _id: tokenHash, sessionId, expiresAt: expiresAt.getTime(), removeAt: removeAt("refreshTokens", expiresAt) },
      { session },
    );
  }

  /** Sets a password, or none, and ends all links and sessions of the user but one, and answers the ids of those that it ended. */
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
    return endOtherSessions(tx, userId, keptSession, now);
  }

  /** Ends the user's sessions but one, and answers the ids of those that it ended. */
  async function endOtherSessions(
    { session }: MongoTransaction,
    userId: string,
    keptSession: string | undefined,
    now: Date,
  ): Promise<string[]> {
    const live = {
      userId,
      endedAt: { $exists: false },
      ...(keptSession !== undefined && { _id: { $ne: keptSession } }),
    };
    const ended = await sessions.find(live, { session, projection: { _id: 1 } }).toArray();
    const ids = ended.map(({ _id }) => _id);
    await sessions.updateMany({ _id: { $in: ids } }, { $set: endAt(now) }, { session });
    return ids;
  }

  /** Deletes a user with all that belongs to it, and answers the ids of the sessions that it ended. */
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
    await apiTokens.deleteMany({ userId }, { session });
    await mails.deleteMany({ userId }, { session });
    await unlinkUser(tx, userId);
    await deleteSecondFactor(tx, userId);
    await users.deleteOne({ _id: userId }, { session });
    await tx.publish(events);
    return endOtherSessions(tx, userId, undefined, now);
  }

  const { unlinkUser, ...sso } = createSsoStore(database, {
    addMail,
    removePassword: (tx, userId, now) => setPassword(tx, userId, undefined, now),
  });
  const { deleteSecondFactor, ...secondFactors } = createSecondFactorStore(database, {
    addMail,
    endSessions: (tx, userId, now) => endOtherSessions(tx, userId, undefined, now),
  });

  const endAt = (now: Date) => ({ endedAt: now.getTime(), removeAt: removeAt("sessions", now) });

  return {
    ...serviceStoreOf(database, sealedColumns),
    ...sso,
    ...createLimitStore(db),
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

    createSession: ({ id, userId, passwordHash, secondFactor, client, createdAt, expiresAt, events, ...refresh }) =>
      write(async (tx) => {
        const { session } = tx;
        const { refreshTokenHash, refreshTokenExpiresAt } = refresh;
        const user = await users.updateOne(
          { _id: userId, disabledAt: { $exists: false }, ...(passwordHash !== undefined && { passwordHash }) },
          { $inc: { signIns: 1 } },
          { session },
        );
        if (user.matchedCount === 0) return false;
        const idleAt = refreshTokenExpiresAt;
        await sessions.insertOne(
          {
            _id: id,
            userId,
            createdAt: createdAt.getTime(),
            expiresAt: expiresAt.getTime(),
            idleAt: idleAt.getTime(),
            seenAt: createdAt.getTime(),
            ...client,
            ...(secondFactor && { secondFactor }),
            removeAt: removeAt("sessions", idleAt),
          },
          { session },
        );
        await addRefreshToken(tx, refreshTokenHash, id, refreshTokenExpiresAt);
        await tx.publish(events);
        return true;
      }),

    async findSessionOf(refreshTokenHash) {
      const token = await refreshTokens.findOne({ _id: refreshTokenHash });
      const session = token && (await sessions.findOne({ _id: token.sessionId }, { projection: { userId: 1 } }));
      return session ? { sessionId: session._id, userId: session.userId } : undefined;
    },

    rotateRefreshToken: (presentedHash, successorHash, client, now, eventsOfReuse = []) =>
      write(async (tx) => {
        const { session } = tx;
        const presented = await refreshTokens.findOne({ _id: presentedHash }, { session });
        const signedIn = presented && (await sessions.findOne({ _id: presented.sessionId }, { session }));
        const user = signedIn && (await users.findOne({ _id: signedIn.userId }, { session }));
        if (!presented || !signedIn || !user) return { outcome: "bad" };
        const { sessionId } = presented;
        const lifetime = { endedAt: toOptionalDate(signedIn.endedAt), expiresAt: new Date(signedIn.expiresAt) };
        const successor = await refreshTokens.findOne({ _id: successorHash }, { session });
        const token = {
          expiresAt: new Date(presented.expiresAt),
          usedAt: toOptionalDate(presented.usedAt),
          successorUsed: successor?.usedAt !== undefined,
        };
        const refreshed = {
          outcome: "refreshed" as const,
          sessionId,
          userId: user._id,
          operator: user.operator,
          secondFactor: signedIn.secondFactor ?? false,
        };
        switch (judgeRefresh(token, lifetime, now)) {
          case "bad":
            return { outcome: "bad" };
          case "reused":
            await sessions.updateOne({ _id: sessionId }, { $set: endAt(now) }, { session });
            // Presented again once the session has ended, it ends nothing.
            if (lifetime.endedAt === undefined) await tx.publish(eventsOfReuse);
            return { outcome: "reused", sessionId };
          case "repeat":
            return successor
              ? { ...refreshed, refreshTokenExpiresAt: new Date(successor.expiresAt) }
              : { outcome: "bad" };
          case "rotate": {
            const expiresAt = refreshTokenExpiry(lifetime, now);
            await refreshTokens.updateOne({ _id: presentedHash }, { $set: { usedAt: now.getTime() } }, { session });
            await addRefreshToken(tx, successorHash, sessionId, expiresAt);
            await sessions.updateOne(
              { _id: sessionId },
              {
                $set: {
                  idleAt: expiresAt.getTime(),
                  seenAt: now.getTime(),
                  ...client,
                  removeAt: removeAt("sessions", expiresAt),
                },
                $inc: { refreshes: 1 },
              },
              { session },
            );
            return { ...refreshed, refreshTokenExpiresAt: expiresAt };
          }
        }
      }),

    endSessionOf: (refreshTokenHash, now, events) =>
      write(async (tx) => {
        const { session } = tx;
        const token = await refreshTokens.findOne({ _id: refreshTokenHash }, { session });
        if (!token) return undefined;
        const ended = await sessions.findOneAndUpdate(
          { _id: token.sessionId, endedAt: { $exists: false } },
          { $set: endAt(now) },
          { session },
        );
        if (ended) await tx.publish(events);
        return ended?._id;
      }),

    async listUsers(usernameKey, limit, before) {
      const last = before && { createdAt: before.createdAt.getTime(), _id: before.id };
      const found = await users
        .find({ ...(usernameKey !== undefined && { usernameKey }), ...afterPlace<UserDocument>(last) })
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
        const endedSessionIds = disabled ? await endOtherSessions(tx, userId, undefined, now) : [];
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

    async listSessions(userId, limit, before, now) {
      const last = before && { createdAt: before.createdAt.getTime(), _id: before.id };
      const found = await sessions
        .find({
          userId,
          endedAt: { $exists: false },
          idleAt: { $gt: now.getTime() },
          ...afterPlace<SessionDocument>(last),
        })
        .sort({ createdAt: -1, _id: -1 })
        .limit(limit)
        .toArray();
      return found.map(({ _id, createdAt, seenAt, address = "", userAgent = "" }) => ({
        id: _id,
        createdAt: new Date(createdAt),
        lastSeenAt: new Date(seenAt ?? createdAt),
        client: { address, userAgent },
      }));
    },

    endSession: (userId, sessionId, now, events) =>
      write(async (tx) => {
        const live = { _id: sessionId, userId, endedAt: { $exists: false }, idleAt: { $gt: now.getTime() } };
        const ended = await sessions.updateOne(live, { $set: endAt(now) }, { session: tx.session });
        if (ended.modifiedCount === 0) return false;
        await tx.publish(events);
        return true;
      }),

    endOtherSessions: (userId, keptSessionId, now, events) =>
      write(async (tx) => {
        const ended = await endOtherSessions(tx, userId, keptSessionId, now);
        if (ended.length > 0) await tx.publish(events);
        return ended;
      }),

    async findSessionStart(userId, sessionId) {
      const found = await sessions.findOne({ _id: sessionId, userId, endedAt: { $exists: false } });
      return toOptionalDate(found?.createdAt);
    },

    async listSessionsEndedSince(since) {
      const ended = await sessions.find({ endedAt: { $gt: since.getTime() } }, { projection: { _id: 1 } }).toArray();
      return ended.map(({ _id }) => _id);
    },

    createApiToken: ({ id, createdAt, expiresAt, ...token }, maxTokens, record, events) =>
      write(async (tx) => {
        const { session } = tx;
        const { userId } = token;
        await users.updateOne({ _id: userId }, { $inc: { apiTokens: 1 } }, { session });
        if (
          maxTokens > 0 &&
          (await apiTokens.countDocuments({ userId }, { session, limit: maxTokens })) === maxTokens
        ) {
          return "too_many";
        }
        await tx.keepIdempotencyRecord(record);
        await tx.publish(events);
        await apiTokens.insertOne(
          {
            ...token,
            _id: id,
            createdAt: createdAt.getTime(),
            ...(expiresAt && { expiresAt: expiresAt.getTime(), removeAt: removeAt("apiTokens", expiresAt) }),
          },
          { session },
        );
        return "done";
      }),

    async findApiToken(tokenHash) {
      const token = await apiTokens.findOne({ tokenHash });
      const user =
        token && (await users.findOne({ _id: token.userId }, { projection: { operator: 1, disabledAt: 1 } }));
      if (!token || !user || user.disabledAt !== undefined) return undefined;
      const { operator } = user;
      const secondFactor = operator && (await secondFactors.findSecondFactor(user._id)) !== undefined;
      return { ...toApiToken(token), operator, secondFactor };
    },

    async listApiTokens(userId, limit, before) {
      const last = before && { createdAt: before.createdAt.getTime(), _id: before.id };
      const found = await apiTokens
        .find({ userId, ...afterPlace<ApiTokenDocument>(last) })
        .sort({ createdAt: -1, _id: -1 })
        .limit(limit)
        .toArray();
      return found.map(toApiToken);
    },

    revokeApiToken: (userId, tokenId, events, record) =>
      write(async (tx) => {
        const revoked = await apiTokens.deleteOne({ _id: tokenId, userId }, { session: tx.session });
        if (revoked.deletedCount === 0) return false;
        await tx.keepIdempotencyRecord(record);
        await tx.publish(events);
        return true;
      }),

    async noteApiTokenUses(uses) {
      if (uses.length === 0) return;
      await apiTokens.bulkWrite(
        uses.map(({ id, usedAt }) => ({
          updateOne: { filter: { _id: id }, update: { $max: { lastUsedAt: usedAt.getTime() } } },
        })),
        { ordered: false },
      );
    },

    addKey: ({ id, createdAt, ...key }, unlessAfter) =>
      write(async (tx) => {
        const { session } = tx;
        if (await keys.findOne({ createdAt: { $gt: unlessAfter.getTime() }, use: key.use }, { session })) return false;
        await conflictAs(tx, `${key.use} key`);
        await keys.insertOne({ _id: id, ...key, createdAt: createdAt.getTime() }, { session });
        return true;
      }),

    async listKeys() {
      const found = await keys.find().sort({ createdAt: -1, _id: -1 }).toArray();
      return found.map(({ _id, createdAt, ...key }) => ({
        id: _id,
        ...key,
        sealed: new Uint8Array(key.sealed),
        createdAt: new Date(createdAt),
      }));
    },

    async replaceKeys(fresh, endedAt) {
      // Not in the transaction, which every refresh meanwhile would make run again. Before it, so that no session that is
      // open gets a token of a new key; after it, for those that began in between.
      const endAll = () =>
        sessions.updateMany({ endedAt: { $exists: false } }, { $set: endAt(endedAt) }, { hint: { _id: 1 } });
      await endAll();
      await write(async ({ session }) => {
        await keys.deleteMany({}, { session, hint: { _id: 1 } });
        await keys.insertMany(
          fresh.map(({ id, createdAt, ...key }) => ({ _id: id, ...key, createdAt: createdAt.getTime() })),
          { session },
        );
      });
      await endAll();
    },

    async removeKeys(ids) {
      await keys.deleteMany({ _id: { $in: [...ids] } });
    },

    async takeDueMails(now, leasedUntil, limit) {
      const taken: DueMail[] = [];
      while (taken.length < limit) {
        const mail = await mails.findOneAndUpdate(
          { dueAt: { $lte: now.getTime() } },
          { $set: { dueAt: leasedUntil.getTime() }, $inc: { attempts: 1 } },
          { sort: { dueAt: 1, _id: 1 }, returnDocument: "before" },
        );
        if (!mail?.sealed) break;
        taken.push({ id: mail._id, sealed: new Uint8Array(mail.sealed), attempts: mail.attempts });
      }
      return taken;
    },

    async finishMail(id) {
      await mails.updateOne({ _id: id }, [
        { $set: { removeAt: removeAfter("sentMails", "$createdAt") } },
        { $unset: ["sealed", "dueAt"] },
      ]);
    },

    async postponeMail(id, until) {
      await mails.updateOne({ _id: id, dueAt: { $exists: true } }, { $set: { dueAt: until.getTime() } });
    },

    async drawRequests({ key, limit, wanted }, now) {
      const isOver = { $lte: [{ $ifNull: ["$endsAt", 0] }, now.getTime()] };
      const used = { $cond: [isOver, 0, "$used"] };
      const granted = { $max: [0, { $min: [wanted, { $subtract: [limit, used] }] }] };
      const draw = () =>
        requestWindows.findOneAndUpdate(
          { _id: key },
          [
            {
              $set: {
                granted,
                used: { $add: [used, granted] },
                endsAt: { $cond: [isOver, now.getTime() + requestWindowMs, "$endsAt"] },
              },
            },
            { $set: { removeAt: removeAfter("requestWindows", "$endsAt") } },
          ],
          { upsert: true, returnDocument: "after" },
        );
      // Of two first draws of a key at once, the later one finds the document when it is tried again.
      const drawn = await draw().catch((error: unknown) => (isDuplicateKey(error) ? draw() : Promise.reject(error)));
      if (!drawn) throw new Error("an upsert returned no document");
      return { granted: drawn.granted, remaining: Math.max(0, limit - drawn.used), endsAt: new Date(drawn.endsAt) };
    },

    holdSlots: (holder, holds, now) => Promise.all(holds.map((hold) => holdSlots(holder, hold, now))),

    /**
     * MongoDB removes what has expired by itself, going by `removeAt`. A version from before that, which runs beside this one
     * during an upgrade, doesn't set it.
     */
    async sweep() {
      for (const { name, end } of expiringCollections) {
        // An API token may never expire.
        const lacksRemoval = { removeAt: null, ...(name === "api_tokens" && { expiresAt: { $exists: true } }) };
        await db.collection(name).updateMany(lacksRemoval, [{ $set: { removeAt: end } }], { hint: "removal" });
      }
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

function toApiToken(document: ApiTokenDocument): ApiToken {
  const { _id, userId, description, hint, workspaceId, role, expiresAt, createdAt, lastUsedAt } = document;
  return {
    id: _id,
    userId,
    description,
    hint,
    workspaceId,
    role: role ?? Role.UNSPECIFIED,
    expiresAt: toOptionalDate(expiresAt),
    createdAt: new Date(createdAt),
    lastUsedAt: toOptionalDate(lastUsedAt),
  };
}
