import { DomainError } from "@sandgate/kit/base/domain-error";
import { monotonicMs } from "@sandgate/kit/base/time";
import type { UserCaller } from "@sandgate/kit/rpc/context";
import type { GetSessionResponse, GetSigningKeysResponse } from "@sandgate/proto/identity/v1/identity";
import { createLocalJWKSet, errors, type JSONWebKeySet, jwtVerify } from "jose";
import { LRUCache } from "lru-cache";
import type { SignedIn } from "../base/signed-in.ts";

/** What identity signs with; a token that names another algorithm is refused (RFC 8725, 3.1). */
const algorithm = "EdDSA";
/** How old the cached keys and ended sessions may be. */
const maxAgeMs = 1_000;
const maxCachedTokens = 10_000;
/** Longer than an access token lives. */
const keepEndedMs = 600_000;

/** What identity says about its tokens. */
interface IssuerState {
  /** Monotonic. */
  readAt: number;
  jwks: string;
  keys: ReturnType<typeof createLocalJWKSet>;
  keyIds: ReadonlySet<string | undefined>;
  /**
   * The tokens that were verified with these keys. They go with the keys, also one that is being verified meanwhile.
   */
  sessions: LRUCache<string, VerifiedToken>;
  ended: ReadonlySet<string>;
  issuer: string;
  audience: string;
}

/** Until the token expires, its session lives. */
type VerifiedToken = SignedIn & { livesUntil: number };

export interface SessionVerifier {
  /** Who the access token belongs to. Throws INVALID_TOKEN. */
  verify(token: string, requestId: string): Promise<SignedIn>;
  /**
   * Checks again whom a verified token stands for. Pass the result to the next check. Throws INVALID_TOKEN when the
   * session has ended or expired or the token's key was withdrawn.
   */
  confirm(signedIn: SignedIn, requestId: string): Promise<SignedIn>;
  /** Ends the session at once. Identity's next answer may be older, and doesn't undo this. */
  end(sessionId: string): void;
}

/**
 * Verifies session access tokens in this process. The public keys and the recently ended sessions are read again when
 * they are older than a second, so an idle facade makes no calls. Sessions that expire are not among the ended ones:
 * identity is asked about the session of an open request when its token expires, and then each time when the session
 * would have expired without a refresh.
 */
export function createSessionVerifier(o: {
  readKeys(requestId: string): Promise<GetSigningKeysResponse>;
  /** Reads how long a session lives. Throws INVALID_TOKEN when it has ended or expired. */
  readSession(user: UserCaller, requestId: string): Promise<GetSessionResponse>;
  /** In epoch milliseconds. */
  now?: () => number;
  monotonic?: () => number;
}): SessionVerifier {
  const { now = Date.now, monotonic = monotonicMs } = o;
  let state: IssuerState | undefined;
  let refreshing: Promise<IssuerState> | undefined;
  /** Sessions reported as ended, and when by the monotonic clock. */
  const ended = new Map<string, number>();

  async function refresh(requestId: string): Promise<IssuerState> {
    const readAt = monotonic();
    const answer = await o.readKeys(requestId);
    const known = state?.jwks === answer.jwks ? state : undefined;
    for (const [id, at] of ended) if (at < readAt - keepEndedMs) ended.delete(id);
    const jwks: JSONWebKeySet = JSON.parse(answer.jwks);
    state = {
      readAt,
      jwks: answer.jwks,
      keys: known?.keys ?? createLocalJWKSet(jwks),
      keyIds: known?.keyIds ?? new Set(jwks.keys.map(({ kid }) => kid)),
      sessions: known?.sessions ?? new LRUCache({ max: maxCachedTokens }),
      ended: new Set(answer.endedSessionIds),
      issuer: answer.issuer,
      audience: answer.audience,
    };
    return state;
  }

  function currentState(requestId: string): IssuerState | Promise<IssuerState> {
    if (state && monotonic() - state.readAt < maxAgeMs) return state;
    refreshing ??= refresh(requestId).finally(() => {
      refreshing = undefined;
    });
    return refreshing;
  }

  async function parse(token: string, { keys, issuer, audience }: IssuerState): Promise<VerifiedToken> {
    try {
      const { payload, protectedHeader } = await jwtVerify(token, keys, {
        algorithms: [algorithm],
        typ: "at+jwt",
        issuer,
        audience,
        requiredClaims: ["sub", "sid", "exp"],
        currentDate: new Date(now()),
      });
      const { sub, sid, op, op_needs, exp } = payload;
      if (typeof sub !== "string" || typeof sid !== "string" || exp === undefined) throw new errors.JWTInvalid();
      return {
        user: { id: sub, credential: "session", credentialId: sid, operator: op === true },
        ...(protectedHeader.kid !== undefined && { keyId: protectedHeader.kid }),
        ...(op_needs === "second_factor" && { needsSecondFactor: true }),
        livesUntil: exp * 1000,
      };
    } catch (error) {
      const expired = error instanceof errors.JWTExpired;
      throw new DomainError("INVALID_TOKEN", expired ? "The access token has expired." : "The token is not valid.", {
        cause: error,
        hint: expired
          ? "Get a new access token with POST /auth/refresh, or sign in again with POST /auth/login."
          : undefined,
      });
    }
  }

  function requireOpen(sessionId: string, known: IssuerState): void {
    if (!known.ended.has(sessionId) && !ended.has(sessionId)) return;
    throw new DomainError("INVALID_TOKEN", "The session has ended.", { hint: "Sign in again with POST /auth/login." });
  }

  return {
    async verify(token, requestId) {
      const known = await currentState(requestId);
      let verified = known.sessions.get(token);
      if (!verified || verified.livesUntil <= now()) {
        verified = await parse(token, known);
        known.sessions.set(token, verified);
      }
      requireOpen(verified.user.credentialId, known);
      return verified;
    },
    async confirm(signedIn, requestId) {
      const { user, keyId, livesUntil = 0 } = signedIn;
      const known = await currentState(requestId);
      requireOpen(user.credentialId, known);
      if (!known.keyIds.has(keyId)) {
        throw new DomainError("INVALID_TOKEN", "The token is not valid any more.", {
          hint: "Sign in again with POST /auth/login.",
        });
      }
      const askedAt = now();
      if (askedAt < livesUntil) return signedIn;
      const { expiresInMs } = await o.readSession(user, requestId);
      return { ...signedIn, livesUntil: askedAt + expiresInMs };
    },
    end(sessionId) {
      ended.set(sessionId, monotonic());
    },
  };
}
