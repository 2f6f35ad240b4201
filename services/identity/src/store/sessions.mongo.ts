import { toOptionalDate } from "@sandgate/kit/base/time";
import { afterPosition, type MongoDatabase, type MongoTransaction } from "@sandgate/kit/storage/mongo";
import { decideRefresh, type Refresh, type RefreshState } from "../domain/sessions.ts";
import { type Collections, collectionsOf, linkKey, type SessionDocument } from "./collections.mongo.ts";
import { removeAt } from "./expiry.mongo.ts";
import type { RefreshTokens, Sessions } from "./sessions.ts";

const endAt = (now: Date) => ({ endedAt: now.getTime(), removeAt: removeAt("sessions", now) });
const isLive = { endedAt: { $exists: false } } as const;

/** Ends the user's sessions but one, or all, and returns the ids of those that it ended. */
export async function endSessionsOf(
  { sessions }: Collections,
  { session }: MongoTransaction,
  userId: string,
  now: Date,
  keptSessionId?: string,
): Promise<string[]> {
  const live = { userId, ...isLive, ...(keptSessionId !== undefined && { _id: { $ne: keptSessionId } }) };
  const ended = await sessions.find(live, { session, projection: { _id: 1 } }).toArray();
  const ids = ended.map(({ _id }) => _id);
  await sessions.updateMany({ _id: { $in: ids } }, { $set: endAt(now) }, { session });
  return ids;
}

/** Ends every session, in no transaction. */
export async function endAllSessions({ sessions }: Collections, endedAt: Date): Promise<void> {
  await sessions.updateMany(isLive, { $set: endAt(endedAt) }, { hint: { _id: 1 } });
}

async function addRefreshToken(
  { refreshTokens }: Collections,
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

export function createSessions({ db, write }: MongoDatabase): Sessions {
  const collections = collectionsOf(db);
  const { users, sessions, externalIdentities } = collections;

  return {
    create: ({ id, userId, passwordHash, identity, secondFactor, client, createdAt, expiresAt, events, ...refresh }) =>
      write(async (tx) => {
        const { session } = tx;
        const { refreshTokenHash, refreshTokenExpiresAt } = refresh;
        if (identity && !(await externalIdentities.findOne({ _id: linkKey(identity), userId }, { session })))
          return false;
        const user = await users.updateOne(
          { _id: userId, disabledAt: { $exists: false }, ...(passwordHash !== undefined && { passwordHash }) },
          { $inc: { signIns: 1 } },
          { session },
        );
        if (user.matchedCount === 0) return false;
        await sessions.insertOne(
          {
            _id: id,
            userId,
            createdAt: createdAt.getTime(),
            expiresAt: expiresAt.getTime(),
            idleAt: refreshTokenExpiresAt.getTime(),
            seenAt: createdAt.getTime(),
            ...client,
            ...(secondFactor && { secondFactor }),
            removeAt: removeAt("sessions", refreshTokenExpiresAt),
          },
          { session },
        );
        await addRefreshToken(collections, tx, refreshTokenHash, id, refreshTokenExpiresAt);
        await tx.publish(events);
        return true;
      }),

    async list(userId, limit, before, now) {
      const last = before && { createdAt: before.createdAt.getTime(), _id: before.id };
      const found = await sessions
        .find({ userId, ...isLive, idleAt: { $gt: now.getTime() }, ...afterPosition<SessionDocument>(last) })
        .sort({ createdAt: -1, _id: -1 })
        .limit(limit)
        .toArray();
      return found.map(({ _id, createdAt, seenAt, address, userAgent }) => ({
        id: _id,
        createdAt: new Date(createdAt),
        lastSeenAt: new Date(seenAt),
        client: { address, userAgent },
      }));
    },

    async find(userId, sessionId, now) {
      const found = await sessions.findOne({ _id: sessionId, userId, ...isLive, idleAt: { $gt: now.getTime() } });
      return found ? { createdAt: new Date(found.createdAt), idleAt: new Date(found.idleAt) } : undefined;
    },

    end: (userId, sessionId, now, events) =>
      write(async (tx) => {
        const live = { _id: sessionId, userId, ...isLive, idleAt: { $gt: now.getTime() } };
        const ended = await sessions.updateOne(live, { $set: endAt(now) }, { session: tx.session });
        if (ended.modifiedCount === 0) return false;
        await tx.publish(events);
        return true;
      }),

    endOthers: (userId, keptSessionId, now, events) =>
      write(async (tx) => {
        const ended = await endSessionsOf(collections, tx, userId, now, keptSessionId);
        if (ended.length > 0) await tx.publish(events);
        return ended;
      }),

    async listEndedSince(since) {
      const ended = await sessions.find({ endedAt: { $gt: since.getTime() } }, { projection: { _id: 1 } }).toArray();
      return ended.map(({ _id }) => _id);
    },
  };
}

export function createRefreshTokens({ db, write }: MongoDatabase): RefreshTokens {
  const collections = collectionsOf(db);
  const { users, sessions, refreshTokens } = collections;

  async function readToken({ session }: MongoTransaction, tokenHash: Uint8Array) {
    const found = await refreshTokens.findOne({ _id: tokenHash }, { session });
    if (!found) return undefined;
    const { sessionId, expiresAt, usedAt } = found;
    return { sessionId, expiresAt: new Date(expiresAt), usedAt: toOptionalDate(usedAt) };
  }

  async function readState(
    tx: MongoTransaction,
    { presentedHash, successorHash }: Refresh,
  ): Promise<RefreshState | undefined> {
    const { session } = tx;
    const presented = await readToken(tx, presentedHash);
    const signedIn = presented && (await sessions.findOne({ _id: presented.sessionId }, { session }));
    const user = signedIn && (await users.findOne({ _id: signedIn.userId }, { session }));
    if (!user) return undefined;
    return {
      session: {
        id: signedIn._id,
        userId: user._id,
        operator: user.operator,
        secondFactor: signedIn.secondFactor ?? false,
        expiresAt: new Date(signedIn.expiresAt),
        endedAt: toOptionalDate(signedIn.endedAt),
      },
      presented,
      successor: await readToken(tx, successorHash),
    };
  }

  return {
    async findSession(refreshTokenHash) {
      const token = await refreshTokens.findOne({ _id: refreshTokenHash });
      const session = token && (await sessions.findOne({ _id: token.sessionId }, { projection: { userId: 1 } }));
      return session ? { sessionId: session._id, userId: session.userId } : undefined;
    },

    rotate: (refresh, now) =>
      write(async (tx) => {
        const { session } = tx;
        const { refreshed, change } = decideRefresh(await readState(tx, refresh), now);
        if (change?.type === "end_session") {
          await sessions.updateOne({ _id: change.sessionId }, { $set: endAt(now) }, { session });
          await tx.publish(refresh.eventsOfReuse);
        }
        if (change?.type === "rotate") {
          const { sessionId: _id, expiresAt } = change;
          const usedAt = now.getTime();
          await refreshTokens.updateOne({ _id: refresh.presentedHash }, { $set: { usedAt } }, { session });
          await addRefreshToken(collections, tx, refresh.successorHash, _id, expiresAt);
          const idle = { idleAt: expiresAt.getTime(), removeAt: removeAt("sessions", expiresAt) };
          const seen = { seenAt: now.getTime(), ...refresh.client };
          await sessions.updateOne({ _id }, { $set: { ...idle, ...seen }, $inc: { refreshes: 1 } }, { session });
        }
        return refreshed;
      }),

    endSession: (refreshTokenHash, now, events) =>
      write(async (tx) => {
        const { session } = tx;
        const token = await refreshTokens.findOne({ _id: refreshTokenHash }, { session });
        if (!token) return undefined;
        const ended = await sessions.findOneAndUpdate(
          { _id: token.sessionId, ...isLive },
          { $set: endAt(now) },
          { session },
        );
        if (ended) await tx.publish(events);
        return ended?._id;
      }),
  };
}
