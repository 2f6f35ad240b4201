import { createMessage } from "@sandgate/kit/rpc/messages";
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

export function toUser(user: User): UserMessage {
  return createMessage(UserSchema, user);
}

export function toApiToken(token: ApiToken): ApiTokenMessage {
  return createMessage(ApiTokenSchema, { ...token, tokenHint: token.hint });
}

/** Whom an API token signs in, where, and until when. */
export function toVerifiedApiToken(token: ApiToken & { operator: boolean }): VerifyApiTokenResponse {
  return createMessage(VerifyApiTokenResponseSchema, { ...token, tokenId: token.id });
}
