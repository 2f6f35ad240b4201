import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type ApiToken as ApiTokenMessage,
  ApiTokenSchema,
  type User as UserMessage,
  UserSchema,
  type VerifyApiTokenResponseSchema,
} from "@sandgate/proto/identity/v1/identity";
import type { ApiToken } from "./domain/api-tokens.ts";
import type { User } from "./domain/users.ts";

export function toUser({ id, username, verified, operator, createdAt }: User): UserMessage {
  return create(UserSchema, { id, username, verified, operator, createdAt: timestampFromDate(createdAt) });
}

export function toApiToken(token: ApiToken): ApiTokenMessage {
  return create(ApiTokenSchema, {
    id: token.id,
    description: token.description,
    tokenHint: token.hint,
    workspaceId: token.workspaceId ?? "",
    createdAt: timestampFromDate(token.createdAt),
    ...(token.expiresAt !== undefined && { expiresAt: timestampFromDate(token.expiresAt) }),
    ...(token.lastUsedAt !== undefined && { lastUsedAt: timestampFromDate(token.lastUsedAt) }),
  });
}

/** Whom an API token signs in, where, and for how long. */
export function toVerifiedApiToken(
  token: ApiToken & { operator: boolean },
): MessageInitShape<typeof VerifyApiTokenResponseSchema> {
  return {
    tokenId: token.id,
    userId: token.userId,
    operator: token.operator,
    ...(token.workspaceId !== undefined && { workspaceId: token.workspaceId }),
    ...(token.expiresAt !== undefined && { expiresAt: timestampFromDate(token.expiresAt) }),
  };
}
