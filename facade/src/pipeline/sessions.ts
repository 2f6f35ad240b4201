import { DomainError } from "@sandgate/kit/base/domain-error";
import type { GetSigningKeysResponse } from "@sandgate/proto/identity/v1/identity";
import { createLocalJWKSet, errors, jwtVerify } from "jose";
import type { SignedIn } from "./signed-in.ts";

/** What identity signs with; a token that names another algorithm is refused (RFC 8725, 3.1). */
const algorithm = "EdDSA";
/** How old the knowledge of keys and ended sessions may be. */
const maxAgeMs = 1_000;
const rememberedTokens = 10_000;
/** Longer than an access token lives. */
const forgetEndedMs = 600_000;

interface Knowledge {
  readAt: number;
  jwks: string;
  keys: ReturnType<typeof createLocalJWKSet>;
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
  /** Whose access token this is. Throws INVALID_TOKEN. */
  verify(token: string, requestId: string): Promise<SignedIn>;
  /** Throws INVALID_TOKEN when the session is over. */
  confirm(sessionId: string, requestId: string): Promise<void>;
  /** The session is over from now on, whatever identity's next answer says, which may be from before. */
  end(sessionId: string): void;
}

/**
 * Verifies session access tokens in this process. The public keys and the sessions ended of late are read when what is
 * known is older than a second, so an idle facade asks nothing.
 */
export function createSessionVerifier(o: {
  readKeys(requestId: string): Promise<GetSigningKeysResponse>;
  now?: () => number;
}): SessionVerifier {
  const now = o.now ?? Date.now;
  let knowledge: Knowledge | undefined;
  let reading: Promise<Knowledge> | undefined;
  let sessions = new Map<string, Session>();
  /** Sessions said to be over, and when. */
  const ended = new Map<string, number>();

  async function read(requestId: string): Promise<Knowledge> {
    const readAt = now();
    const answer = await o.readKeys(requestId);
    const known = knowledge?.jwks === answer.jwks ? knowledge : undefined;
    // A token is only remembered as long as its key may be published.
    if (!known) sessions = new Map();
    for (const [id, at] of ended) if (at < readAt - forgetEndedMs) ended.delete(id);
    knowledge = {
      readAt,
      jwks: answer.jwks,
      keys: known?.keys ?? createLocalJWKSet(JSON.parse(answer.jwks)),
      ended: new Set(answer.endedSessionIds),
      issuer: answer.issuer,
      audience: answer.audience,
    };
    return knowledge;
  }

  function know(requestId: string): Knowledge | Promise<Knowledge> {
    if (knowledge && now() - knowledge.readAt < maxAgeMs) return knowledge;
    reading ??= read(requestId).finally(() => {
      reading = undefined;
    });
    return reading;
  }

  async function parse(token: string, { keys, issuer, audience }: Knowledge): Promise<Session> {
    try {
      const { payload } = await jwtVerify(token, keys, {
        algorithms: [algorithm],
        typ: "at+jwt",
        issuer,
        audience,
        requiredClaims: ["sub", "sid", "exp"],
        currentDate: new Date(now()),
      });
      const { sub, sid, op, exp } = payload;
      if (typeof sub !== "string" || typeof sid !== "string" || exp === undefined) throw new errors.JWTInvalid();
      return {
        signedIn: { user: { id: sub, credential: "session", credentialId: sid, operator: op === true } },
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

  function requireOpen(sessionId: string, known: Knowledge): void {
    if (!known.ended.has(sessionId) && !ended.has(sessionId)) return;
    throw new DomainError("INVALID_TOKEN", "The session has ended.", { hint: "Sign in again with POST /auth/login." });
  }

  return {
    async verify(token, requestId) {
      const known = await know(requestId);
      let session = sessions.get(token);
      if (!session || session.expiresAt <= now()) {
        sessions.delete(token);
        session = await parse(token, known);
        if (sessions.size >= rememberedTokens) sessions.clear();
        sessions.set(token, session);
      }
      requireOpen(session.sessionId, known);
      return session.signedIn;
    },
    async confirm(sessionId, requestId) {
      requireOpen(sessionId, await know(requestId));
    },
    end(sessionId) {
      ended.set(sessionId, now());
    },
  };
}
