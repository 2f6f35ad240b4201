import type { MessageInitShape } from "@bufbuild/protobuf";
import { createMessage } from "@sandgate/kit/rpc/messages";
import { Role } from "@sandgate/proto/common/v1/access";
import {
  type ApiToken as ApiTokenMessage,
  ApiTokenSchema,
  type ClientInfo as ClientInfoMessage,
  type FinishSsoResponseSchema,
  type Identity as IdentityMessage,
  IdentitySchema,
  type Session as SessionMessage,
  SessionSchema,
  type StartSsoResponseSchema,
  type User as UserMessage,
  UserSchema,
  type VerifyApiTokenResponse,
  VerifyApiTokenResponseSchema,
} from "@sandgate/proto/identity/v1/identity";
import type { ApiToken, VerifiedApiToken } from "./domain/api-tokens.ts";
import { type OperatorSecondFactor, operatorRights } from "./domain/operator-rights.ts";
import type { ClientInfo, Session } from "./domain/sessions.ts";
import type { LinkedIdentity } from "./domain/single-sign-on.ts";
import type { User } from "./domain/users.ts";
import type { SessionTokens } from "./usecases/sessions.ts";
import type { SsoAttempt, SsoOutcome } from "./usecases/single-sign-on.ts";

export function toUser(user: User): UserMessage {
  return createMessage(UserSchema, user);
}

/** Where a request came from; empty when the caller doesn't say. */
export function toClientInfo(client: ClientInfoMessage | undefined): ClientInfo {
  return { address: client?.address ?? "", userAgent: client?.userAgent ?? "" };
}

export function toSession({ client, ...session }: Session, currentId: string): SessionMessage {
  return createMessage(SessionSchema, { ...session, ...client, current: session.id === currentId });
}

export function toIdentity(identity: LinkedIdentity): IdentityMessage {
  return createMessage(IdentitySchema, identity);
}

export function toStartSsoResponse(started: SsoOutcome<SsoAttempt>): MessageInitShape<typeof StartSsoResponseSchema> {
  const { redirectUri } = started;
  if ("failure" in started) return { redirectUri, outcome: { case: "failure", value: started.failure } };
  return { redirectUri, outcome: { case: "attempt", value: started.result } };
}

export function toFinishSsoResponse(
  finished: SsoOutcome<SessionTokens>,
): MessageInitShape<typeof FinishSsoResponseSchema> {
  const { redirectUri } = finished;
  if ("failure" in finished) {
    return { redirectUri, outcome: { case: "failure", value: finished.failure }, hint: finished.hint ?? "" };
  }
  return { redirectUri, outcome: { case: "tokens", value: finished.result } };
}

export function toApiToken(token: ApiToken): ApiTokenMessage {
  return createMessage(ApiTokenSchema, {
    ...token,
    tokenHint: token.hint,
    permissions: [...(token.permissions ?? [])],
  });
}

/** Whom an API token signs in, where, and until when. */
export function toVerifiedApiToken(token: VerifiedApiToken, demanded: OperatorSecondFactor): VerifyApiTokenResponse {
  // Operator rights reach over all workspaces, so a token that is limited in either way has none.
  const isLimited = token.role !== Role.UNSPECIFIED || token.workspaceId !== undefined;
  const operator = !isLimited && operatorRights(token, token.secondFactor, demanded).operator;
  return createMessage(VerifyApiTokenResponseSchema, {
    ...token,
    operator,
    tokenId: token.id,
    permissions: [...(token.permissions ?? [])],
  });
}
