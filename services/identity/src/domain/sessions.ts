import { createHmac } from "node:crypto";

/** Spec 2.5: what the answers' expires_in and refresh_expires_in say. */
export const ACCESS_TOKEN_SECONDS = 300;
export const REFRESH_TOKEN_SECONDS = 1800;
/** However often it is refreshed, a session ends 30 days after the sign-in. */
export const SESSION_SECONDS = 30 * 24 * 3600;
/** A client that lost the answer may present its token again within this time. */
const RETRY_GRACE_MS = 10_000;
/**
 * How long an ended session is named to the facades: an access token's life, and some time for an access token that was
 * being signed while its session ended and for a clock that runs behind.
 */
export const ENDED_SESSION_MS = (ACCESS_TOKEN_SECONDS + 30) * 1000;

/** Times are epoch milliseconds. */
export interface Session {
  id: string;
  userId: string;
  createdAt: number;
  /** No refresh token of the session is good after this. */
  expiresAt: number;
  endedAt: number | undefined;
}

export interface RefreshToken {
  expiresAt: number;
  usedAt: number | undefined;
  /** Whoever used the successor had the answer and has no reason to retry. */
  successorUsed: boolean;
}

/** The token that follows the presented one. Derived, so a retry gets the same one though only hashes are stored. */
export function successorOf(presented: string, sessionId: string, serverKey: Uint8Array): string {
  return createHmac("sha256", serverKey).update(`${sessionId}\n${presented}`).digest("base64url");
}

export function refreshTokenExpiry(session: Pick<Session, "expiresAt">, now: number): number {
  return Math.min(now + REFRESH_TOKEN_SECONDS * 1000, session.expiresAt);
}

/**
 * What to do with a presented refresh token: `rotate` it, `repeat` the successor it already has, refuse it as `bad`, or
 * end its session, because a token that is `reused` and no retry was stolen from its owner, or by its presenter.
 */
export function judgeRefresh(
  token: RefreshToken,
  session: Pick<Session, "endedAt" | "expiresAt">,
  now: number,
): "rotate" | "repeat" | "bad" | "reused" {
  if (session.endedAt !== undefined || session.expiresAt <= now) return "bad";
  if (token.usedAt !== undefined) {
    return now - token.usedAt <= RETRY_GRACE_MS && !token.successorUsed ? "repeat" : "reused";
  }
  return token.expiresAt > now ? "rotate" : "bad";
}
