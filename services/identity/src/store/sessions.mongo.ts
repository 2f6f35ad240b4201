import { toOptionalDate } from "@sandgate/kit/base/time";
import { afterPosition, type MongoDatabase, type MongoTransaction } from "@sandgate/kit/storage/mongo";
import { judgeRefresh, refreshTokenExpiry } from "../domain/sessions.ts";
import { type Expiring, removeAt } from "./removal.mongo.ts";
import type { IdentityStore } from "./store.ts";

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

/** The fields of a user that sessions read and write. */
interface UserDocument {
  _id: string;
  passwordHash?: string;
  operator: boolean;
  disabledAt?: number;
  /** Grows with every sign-in, so that one conflicts with a change of the password. */
  signIns?: number;
}

type SessionStore = Pick<
  IdentityStore,
  | "createSession"
  | "findSessionOf"
  | "rotateRefreshToken"
  | "endSessionOf"
  | "listSessions"
  | "endSession"
  | "endOtherSessions"
  | "findSessionStart"
  | "listSessionsEndedSince"
>;

/** The part of the store that sessions use, and what the rest needs of it. */
export function createSessionStore({ db, write }: MongoDatabase): SessionStore & {
  /** Ends the user's sessions but one, and returns the ids of those that it ended. */
  endSessions(tx: MongoTransaction, userId: string, keptSession: string | undefined, now: Date): Promise<string[]>;
  endAllSessions(endedAt: Date): Promise<void>;
} {
  const users = db.collection<UserDocument>("users");
  const sessions = db.collection<SessionDocument>("sessions");
  const refreshTokens = db.collection<RefreshTokenDocument>("refresh_tokens");

  const endAt = (now: Date) => ({ endedAt: now.getTime(), removeAt: removeAt("sessions", now) });

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

  async function endSessions(
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

  return {
    endSessions,

    async endAllSessions(endedAt) {
      await sessions.updateMany({ endedAt: { $exists: false } }, { $set: endAt(endedAt) }, { hint: { _id: 1 } });
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

    async listSessions(userId, limit, before, now) {
      const last = before && { createdAt: before.createdAt.getTime(), _id: before.id };
      const found = await sessions
        .find({
          userId,
          endedAt: { $exists: false },
          idleAt: { $gt: now.getTime() },
          ...afterPosition<SessionDocument>(last),
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
        const ended = await endSessions(tx, userId, keptSessionId, now);
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
  };
}
