import { DomainError } from "@sandgate/kit/base/domain-error";
import { monotonicMs } from "@sandgate/kit/base/time";
import type { GetSigningKeysResponse } from "@sandgate/proto/identity/v1/identity";
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
  sessions: LRUCache<string, Session>;
  ended: ReadonlySet<string>;
  issuer: string;
  audience: string;
}

interface Session {
  signedIn: SignedIn;
  sessionId: string;
  /** Epoch milliseconds. */
  expiresAt: number;
}

export interface SessionVerifier {
  /** Who the access token belongs to. Throws INVALID_TOKEN. */
  verify(token: string, requestId: string): Promise<SignedIn>;
  /**
   * Checks whom a token that was verified before stands for again. Throws INVALID_TOKEN when the session has ended or
   * the token's key was withdrawn.
   */
  confirm(signedIn: SignedIn, requestId: string): Promise<void>;
  /** Ends the session at once. Identity's next answer may be older, and doesn't undo this. */
  end(sessionId: string): void;
}

/**
 * Verifies session access tokens in this process. The public keys and the recently ended sessions are read again when
 * they are older than a second, so an idle facade makes no calls.
 */
export function createSessionVerifier(o: {
  readKeys(requestId: string): Promise<GetSigningKeysResponse>;
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

  async function parse(token: string, { keys, issuer, audience }: IssuerState): Promise<Session> {
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
        signedIn: {
          user: { id: sub, credential: "session", credentialId: sid, operator: op === true },
          ...(protectedHeader.kid !== undefined && { keyId: protectedHeader.kid }),
          ...(op_needs === "second_factor" && { needsSecondFactor: true }),
        },
        sessionId: sid,
        expiresAt: exp * 1000,
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
      let session = known.sessions.get(token);
      if (!session || session.expiresAt <= now()) {
        session = await parse(token, known);
        known.sessions.set(token, session);
      }
      requireOpen(session.sessionId, known);
      return session.signedIn;
    },
    async confirm({ user, keyId }, requestId) {
      const known = await currentState(requestId);
      requireOpen(user.credentialId, known);
      if (known.keyIds.has(keyId)) return;
      throw new DomainError("INVALID_TOKEN", "The token is not valid any more.", {
        hint: "Sign in again with POST /auth/login.",
      });
    },
    end(sessionId) {
      ended.set(sessionId, monotonic());
    },
  };
}
