import { IdentitySchema, SessionSchema, type SessionTokens } from "@sandgate/proto/identity/v1/identity";
import type { Static } from "typebox";
import { present } from "../../pipeline/messages/contract.ts";
import { createMapper } from "../../pipeline/messages/mapper.ts";
import * as schemas from "./schemas.ts";

export const toSession = createMapper(SessionSchema, schemas.Session, {});

export const toIdentity = createMapper(IdentitySchema, schemas.Identity, {});

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
