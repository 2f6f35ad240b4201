import { createHmac } from "node:crypto";
import { addMs } from "@sandgate/kit/base/time";

/** How long an access token is valid. */
export const accessTokenSeconds = 300;
/** How long a refresh token is valid. */
export const refreshTokenSeconds = 1800;
/** However often it is refreshed, a session ends 30 days after the sign-in. */
export const sessionSeconds = 30 * 24 * 3600;
/** A client that lost the answer may present its token again within this time. */
const retryGraceMs = 10_000;
/**
 * How long an ended session is reported to the facades: an access token's life, and some time for an access token that was
 * being signed while its session ended, and for a clock that runs behind.
 */
export const endedSessionMs = (accessTokenSeconds + 30) * 1000;

interface SessionLifetime {
  /** No refresh token of the session is valid after this. */
  expiresAt: Date;
  endedAt: Date | undefined;
}

interface RefreshToken {
  expiresAt: Date;
  usedAt: Date | undefined;
  /** Whoever used the successor had the answer and has no reason to retry. */
  successorUsed: boolean;
}

/** The token that follows the presented one. Derived, so a retry gets the same one though only hashes are stored. */
export function successorOf(presented: string, sessionId: string, serverKey: Uint8Array): string {
  return createHmac("sha256", serverKey).update(`${sessionId}\n${presented}`).digest("base64url");
}

export function refreshTokenExpiry(session: Pick<SessionLifetime, "expiresAt">, now: Date): Date {
  return new Date(Math.min(now.getTime() + refreshTokenSeconds * 1000, session.expiresAt.getTime()));
}

/**
 * What to do with a presented refresh token: `rotate` it, `repeat` the successor it already has, refuse it as `bad`, or
 * end its session, because a token that is `reused` and no retry was stolen from its owner, or by its presenter.
 */
export function judgeRefresh(
  token: RefreshToken,
  session: SessionLifetime,
  now: Date,
): "rotate" | "repeat" | "bad" | "reused" {
  if (session.endedAt !== undefined || session.expiresAt <= now) return "bad";
  if (token.usedAt !== undefined) {
    return now <= addMs(token.usedAt, retryGraceMs) && !token.successorUsed ? "repeat" : "reused";
  }
  return token.expiresAt > now ? "rotate" : "bad";
}
