import { toOptionalDate } from "@sandgate/kit/base/time";
import { afterPosition, type MongoDatabase, type MongoTransaction } from "@sandgate/kit/storage/mongo";
import { Role } from "@sandgate/proto/common/v1/access";
import type { ApiToken } from "../domain/api-tokens.ts";
import { type Expiring, removeAt } from "./removal.mongo.ts";
import type { IdentityStore } from "./store.ts";

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

/** The fields of a user that API tokens read and write. */
interface UserDocument {
  _id: string;
  operator: boolean;
  disabledAt?: number;
  /** Grows with every new API token of the user: transactions that add one conflict on it, so that their number is right. */
  apiTokens?: number;
}

type ApiTokenStore = Pick<
  IdentityStore,
  "createApiToken" | "findApiToken" | "listApiTokens" | "revokeApiToken" | "noteApiTokenUses"
>;

/** The part of the store that API tokens use, and what the rest needs of it. */
export function createApiTokenStore(
  { db, write }: MongoDatabase,
  o: { hasSecondFactor(userId: string): Promise<boolean> },
): ApiTokenStore & { deleteApiTokens(tx: MongoTransaction, userId: string): Promise<void> } {
  const users = db.collection<UserDocument>("users");
  const apiTokens = db.collection<ApiTokenDocument>("api_tokens");

  return {
    async deleteApiTokens({ session }, userId) {
      await apiTokens.deleteMany({ userId }, { session });
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
      const secondFactor = operator && (await o.hasSecondFactor(user._id));
      return { ...toApiToken(token), operator, secondFactor };
    },

    async listApiTokens(userId, limit, before) {
      const last = before && { createdAt: before.createdAt.getTime(), _id: before.id };
      const found = await apiTokens
        .find({ userId, ...afterPosition<ApiTokenDocument>(last) })
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
