import { hash } from "node:crypto";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { EventBus } from "@sandgate/kit/events/bus";
import { toPermissionNames, toRoleName } from "@sandgate/kit/rpc/access";
import { asFacade } from "@sandgate/kit/rpc/context";
import { Role } from "@sandgate/proto/common/v1/access";
import { VerifyApiTokenRequestSchema } from "@sandgate/proto/identity/v1/identity";
import type { Clients } from "../base/clients.ts";
import type { SignedIn } from "../base/signed-in.ts";
import { maxLengthOf } from "../messages/field-rules.ts";
import { LoadingCache } from "./loading-cache.ts";
import { createSessionVerifier } from "./session-verifier.ts";

export interface Authenticator {
  /** Checks an Authorization header. Throws UNAUTHENTICATED or INVALID_TOKEN. */
  authenticate(authorization: string | undefined, requestId: string): Promise<SignedIn>;
  /** Whom the API token with this id stands for now. Throws INVALID_TOKEN. */
  findApiToken(tokenId: string, requestId: string): Promise<SignedIn>;
  /**
   * Checks the credential of an open request again, and returns whom it stands for now. Throws INVALID_TOKEN when it
   * was revoked, its session has ended or expired, or its key was withdrawn. An access token that has only expired since
   * then stays valid for that request.
   */
  confirm(signedIn: SignedIn, authorization: string | undefined, requestId: string): Promise<SignedIn>;
  close(): void;
}

/** How API tokens begin. */
const apiTokenPrefix = "sgt_";
/** No longer access token was ever issued. */
const maxAccessTokenLength = 4_096;
const maxApiTokenLength = maxLengthOf(VerifyApiTokenRequestSchema, "token");

/** Cached credentials are at most a second old; identity's signals drop them earlier. */
export function createAuthenticator(o: { clients: Clients; bus: EventBus }): Authenticator {
  const { identity } = o.clients;
  const sessions = createSessionVerifier({
    readKeys: (requestId) => identity.getSigningKeys({}, asFacade({ requestId })),
    readSession: (user, requestId) => identity.getSession({}, asFacade({ requestId, user })),
  });
  const apiTokens = new LoadingCache<SignedIn>({ maxAgeMs: 1_000 });
  const unwatch = [
    o.bus.watch("identity.sessions.ended", (sessionId) => sessions.end(sessionId)),
    o.bus.watch("identity.api_tokens.revoked", () => apiTokens.forget()),
  ];

  async function verifyApiToken(by: { token: string } | { tokenId: string }, requestId: string): Promise<SignedIn> {
    const answer = await identity.verifyApiToken({ ...by, heedsPermissions: true }, asFacade({ requestId }));
    return {
      user: {
        id: answer.userId,
        credential: "api_token",
        credentialId: answer.tokenId,
        operator: answer.operator,
        // A role that this version doesn't know grants no more than the lowest one.
        ...(answer.role !== Role.UNSPECIFIED && { roleLimit: toRoleName(answer.role) ?? "member" }),
        // Nor does a permission that it doesn't know grant anything.
        ...(answer.permissions.length > 0 && { permissions: toPermissionNames(answer.permissions) }),
      },
      ...(answer.workspaceId && { boundTo: answer.workspaceId }),
    };
  }

  async function authenticate(authorization: string | undefined, requestId: string): Promise<SignedIn> {
    const token = readBearer(authorization);
    if (!token.startsWith(apiTokenPrefix)) {
      if (token.length > maxAccessTokenLength) throw new DomainError("INVALID_TOKEN", "The token is not valid.");
      return sessions.verify(token, requestId);
    }
    if (token.length > maxApiTokenLength) throw new DomainError("INVALID_TOKEN", "The API token is not valid.");
    // The key is a hash, so no token is kept in memory.
    const key = hash("sha256", token, "base64");
    return apiTokens.get(key, () => verifyApiToken({ token }, requestId));
  }

  const findApiToken = (tokenId: string, requestId: string) =>
    apiTokens.get(tokenId, () => verifyApiToken({ tokenId }, requestId));

  return {
    authenticate,
    findApiToken,
    async confirm(signedIn, authorization, requestId) {
      const { user, ticket } = signedIn;
      if (user.credential === "session") return sessions.confirm(signedIn, requestId);
      if (!ticket) return authenticate(authorization, requestId);
      return { ...(await findApiToken(user.credentialId, requestId)), ticket };
    },
    close() {
      for (const stop of unwatch) stop();
    },
  };
}

function readBearer(authorization: string | undefined): string {
  const token = /^bearer(?: (.*))?$/i.exec(authorization ?? "")?.[1]?.trim();
  if (!token) throw new DomainError("UNAUTHENTICATED", "The request has no bearer token.");
  return token;
}
