import { toOptionalDate } from "@sandgate/kit/base/time";
import { afterPosition, type MongoDatabase, type MongoTransaction } from "@sandgate/kit/storage/mongo";
import { type ApiToken, hasAllApiTokens, type VerifiedApiToken } from "../domain/api-tokens.ts";
import type { ApiTokens } from "./api-tokens.ts";
import { type ApiTokenDocument, type Collections, collectionsOf } from "./collections.mongo.ts";
import { removeAt } from "./expiry.mongo.ts";
import { addMail } from "./mails.mongo.ts";
import { consume } from "./rate-counters.mongo.ts";

function toApiToken(document: ApiTokenDocument): ApiToken {
  const { _id, userId, description, hint, workspaceId, role, permissions, expiresAt, createdAt, lastUsedAt } = document;
  return {
    id: _id,
    userId,
    description,
    hint,
    workspaceId,
    role,
    permissions,
    expiresAt: toOptionalDate(expiresAt),
    createdAt: new Date(createdAt),
    lastUsedAt: toOptionalDate(lastUsedAt),
  };
}

/** Returns how many it revoked. */
export async function revokeApiTokensOf(
  { apiTokens }: Collections,
  { session }: MongoTransaction,
  userId: string,
): Promise<number> {
  return (await apiTokens.deleteMany({ userId }, { session })).deletedCount;
}

export function createApiTokens({ db, write }: MongoDatabase): ApiTokens {
  const collections = collectionsOf(db);
  const { users, sessions, apiTokens, secondFactors } = collections;

  async function findVerified(by: { tokenHash: Uint8Array } | { _id: string }): Promise<VerifiedApiToken | undefined> {
    const token = await apiTokens.findOne(by);
    const user = token && (await users.findOne({ _id: token.userId }, { projection: { operator: 1, disabledAt: 1 } }));
    if (!token || !user || user.disabledAt !== undefined) return undefined;
    const { _id: userId, operator } = user;
    const enabled = { userId, enabledAt: { $exists: true } };
    const factor = operator && token.secondFactor && (await secondFactors.findOne(enabled, { projection: { _id: 1 } }));
    return { ...toApiToken(token), operator, secondFactor: Boolean(factor) };
  }

  return {
    create: ({ id, sessionId, notice, createdAt, expiresAt, ...token }, maxTokens, record, events) =>
      write(async (tx) => {
        const { session } = tx;
        const { userId } = token;
        const { secondFactor, endedAt } = (await sessions.findOne({ _id: sessionId, userId }, { session })) ?? {};
        if (endedAt !== undefined) return "session_ended";
        await users.updateOne({ _id: userId }, { $inc: { apiTokens: 1 } }, { session });
        const held = maxTokens && (await apiTokens.countDocuments({ userId }, { session, limit: maxTokens }));
        if (hasAllApiTokens(held, maxTokens)) return "too_many";
        await tx.keepIdempotencyRecord(record);
        await tx.publish(events);
        const expiry = expiresAt && { expiresAt: expiresAt.getTime(), removeAt: removeAt("apiTokens", expiresAt) };
        const rights = secondFactor && { secondFactor };
        await apiTokens.insertOne(
          { ...token, ...rights, _id: id, createdAt: createdAt.getTime(), ...expiry },
          { session },
        );
        if (notice && (await consume(collections, notice.budget, 1, createdAt, tx)).granted > 0) {
          await addMail(collections, tx, userId, notice.mail, createdAt);
        }
        return "done";
      }),

    find: (tokenHash) => findVerified({ tokenHash }),
    findById: (tokenId) => findVerified({ _id: tokenId }),

    async list(userId, limit, before) {
      const last = before && { createdAt: before.createdAt.getTime(), _id: before.id };
      const found = await apiTokens
        .find({ userId, ...afterPosition<ApiTokenDocument>(last) })
        .sort({ createdAt: -1, _id: -1 })
        .limit(limit)
        .toArray();
      return found.map(toApiToken);
    },

    revoke: (userId, tokenId, events, record) =>
      write(async (tx) => {
        const revoked = await apiTokens.deleteOne({ _id: tokenId, userId }, { session: tx.session });
        if (revoked.deletedCount === 0) return false;
        await tx.keepIdempotencyRecord(record);
        await tx.publish(events);
        return true;
      }),

    revokeAll: (userId, events) =>
      write(async (tx) => {
        if ((await revokeApiTokensOf(collections, tx, userId)) > 0) await tx.publish(events);
      }),

    async recordUses(uses) {
      if (uses.length === 0) return;
      await apiTokens.bulkWrite(
        uses.map(({ id, usedAt }) => ({
          updateOne: { filter: { _id: id }, update: { $max: { lastUsedAt: usedAt.getTime() } } },
        })),
        { ordered: false },
      );
    },
  };
}
