import {
  type GetAccountResponse,
  IdentitySchema,
  SessionSchema,
  type SessionTokens,
} from "@sandgate/proto/identity/v1/identity";
import type { Static } from "typebox";
import type { SignedIn } from "../../pipeline/base/signed-in.ts";
import { opaqueId, present } from "../../pipeline/messages/contract.ts";
import { createMapper } from "../../pipeline/messages/mapper.ts";
import { toIsoMillis } from "../../pipeline/messages/times.ts";
import * as schemas from "./schemas.ts";

export const toSession = createMapper(SessionSchema, schemas.Session, {});

/** The id of a session as the contract accepts it. */
export function sessionIdOf(id: string): string {
  return opaqueId(id, "NOT_FOUND", "You have no such session.");
}

export const toIdentity = createMapper(IdentitySchema, schemas.Identity, {});

/** The id of a link to an account at a provider as the contract accepts it. */
export function identityIdOf(id: string): string {
  return opaqueId(id, "NOT_FOUND", "You have no such link.");
}

/** The caller's account, and what the credential of the request may do. */
export function toAccount(
  { user, hasSecondFactor }: GetAccountResponse,
  { user: caller, boundTo }: SignedIn,
): Static<typeof schemas.Account> {
  const { id, username, operator, createdAt } = present(user);
  return {
    id,
    username,
    is_operator: operator,
    has_second_factor: hasSecondFactor,
    created_at: toIsoMillis(present(createdAt)),
    credential: caller.credential,
    workspace_id: boundTo ?? null,
    role: caller.roleLimit ?? null,
    permissions: caller.permissions ? [...caller.permissions] : null,
  };
}

export function toSessionTokens(tokens: SessionTokens | undefined): Static<typeof schemas.SessionTokens> {
  const { accessToken, refreshToken, expiresInSeconds, refreshExpiresInSeconds } = present(tokens);
  return {
    success: true,
    tokens: {
      access_token: accessToken,
      refresh_token: refreshToken,
      expires_in: expiresInSeconds,
      refresh_expires_in: refreshExpiresInSeconds,
    },
  };
}
