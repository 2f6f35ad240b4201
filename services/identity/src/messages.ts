import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { createMessage, toTimestamp } from "@sandgate/kit/rpc/messages";
import {
  type ApiToken as ApiTokenMessage,
  ApiTokenSchema,
  type User as UserMessage,
  UserSchema,
  type VerifyApiTokenResponse,
  VerifyApiTokenResponseSchema,
} from "@sandgate/proto/identity/v1/identity";
import type { ApiToken } from "./domain/api-tokens.ts";
import type { User } from "./domain/users.ts";

export function toUser({ id, username, verified, operator, createdAt }: User): UserMessage {
  return createMessage(UserSchema, { id, username, verified, operator, createdAt: timestampFromDate(createdAt) });
}

export function toApiToken(token: ApiToken): ApiTokenMessage {
  return createMessage(ApiTokenSchema, {
    id: token.id,
    description: token.description,
    tokenHint: token.hint,
    workspaceId: token.workspaceId ?? "",
    createdAt: timestampFromDate(token.createdAt),
    expiresAt: toTimestamp(token.expiresAt),
    lastUsedAt: toTimestamp(token.lastUsedAt),
  });
}

/** Whom an API token signs in, where, and until when. */
export function toVerifiedApiToken(token: ApiToken & { operator: boolean }): VerifyApiTokenResponse {
  return createMessage(VerifyApiTokenResponseSchema, {
    tokenId: token.id,
    userId: token.userId,
    operator: token.operator,
    workspaceId: token.workspaceId ?? "",
    expiresAt: toTimestamp(token.expiresAt),
  });
}
