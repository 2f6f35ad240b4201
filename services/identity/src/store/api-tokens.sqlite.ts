import { toOptionalDate } from "@sandgate/kit/base/time";
import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import type { Role } from "@sandgate/proto/common/v1/access";
import type { ApiToken, VerifiedApiToken } from "../domain/api-tokens.ts";
import type { apiTokenTransactions } from "./api-tokens.sqlite.transactions.ts";
import type { ApiTokens } from "./api-tokens.ts";

const columns =
  "t.id, t.user_id, t.description, t.hint, t.workspace_id, t.role, t.permissions, t.expires_at, t.created_at, t.last_used_at";

interface ApiTokenRow {
  id: string;
  user_id: string;
  description: string;
  hint: string;
  workspace_id: string | null;
  role: Role;
  /** Numbers, as JSON. */
  permissions: string | null;
  expires_at: number | null;
  created_at: number;
  last_used_at: number | null;
}

interface VerifiedRow extends ApiTokenRow {
  operator: number;
  second_factor: number;
}

const verified = `SELECT ${columns}, u.operator,
    u.operator = 1 AND t.second_factor = 1 AND EXISTS (SELECT 1 FROM second_factors f WHERE f.user_id = u.id AND f.enabled_at IS NOT NULL)
      AS second_factor
  FROM api_tokens t JOIN users u ON u.id = t.user_id
  WHERE u.disabled_at IS NULL`;

function toVerified(row: VerifiedRow | undefined): VerifiedApiToken | undefined {
  return row && { ...toApiToken(row), operator: row.operator === 1, secondFactor: row.second_factor === 1 };
}

function toApiToken(row: ApiTokenRow): ApiToken {
  return {
    id: row.id,
    userId: row.user_id,
    description: row.description,
    hint: row.hint,
    workspaceId: row.workspace_id ?? undefined,
    role: row.role,
    permissions: row.permissions === null ? undefined : JSON.parse(row.permissions),
    expiresAt: toOptionalDate(row.expires_at),
    createdAt: new Date(row.created_at),
    lastUsedAt: toOptionalDate(row.last_used_at),
  };
}

export function createApiTokens({ read, write }: SqliteDatabase<typeof apiTokenTransactions>): ApiTokens {
  return {
    create: write.createApiToken,
    revoke: write.revokeApiToken,
    revokeAll: write.revokeApiTokens,
    recordUses: write.recordApiTokenUses,

    async find(tokenHash) {
      return toVerified(read.get<VerifiedRow>(`${verified} AND t.token_hash = ?`, tokenHash));
    },

    async findById(tokenId) {
      return toVerified(read.get<VerifiedRow>(`${verified} AND t.id = ?`, tokenId));
    },

    async list(userId, limit, before) {
      const rows = read.all<ApiTokenRow>(
        `SELECT ${columns} FROM api_tokens t
         WHERE t.user_id = ? AND (t.created_at, t.id) < (?, ?)
         ORDER BY t.created_at DESC, t.id DESC LIMIT ?`,
        userId,
        before?.createdAt ?? Number.MAX_SAFE_INTEGER,
        before?.id ?? "",
        limit,
      );
      return rows.map(toApiToken);
    },
  };
}
