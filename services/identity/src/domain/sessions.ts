import { createHmac } from "node:crypto";
import { addMs, minuteMs } from "@sandgate/kit/base/time";
import type { StagedEvent } from "@sandgate/kit/events/outbox";

/** How long an access token is valid. */
export const accessTokenSeconds = 300;
/** How long a refresh token is valid. */
export const refreshTokenSeconds = 1800;
/** However often it is refreshed, a session ends 30 days after the sign-in. */
export const sessionSeconds = 30 * 24 * 3600;
/** How long a sign-in shows who is there. A session lasts longer, and may be in a thief's hands by then. */
const recentSignInMs = 5 * minuteMs;
/** A client that lost the answer may present its token again within this time. */
const retryGraceMs = 10_000;
/**
 * How long an ended session is reported to the facades: an access token's life, and some time for an access token that
 * was being signed while its session ended, and for a clock that runs behind.
 */
export const endedSessionMs = (accessTokenSeconds + 30) * 1000;

/** Where a request came from. */
export interface ClientInfo {
  address: string;
  userAgent: string;
}

/** A live session as its user sees it. */
export interface Session {
  id: string;
  createdAt: Date;
  /** Its sign-in or last refresh. */
  lastSeenAt: Date;
  /** The client then. */
  client: ClientInfo;
}

export interface NewSession {
  id: string;
  client: ClientInfo;
  userId: string;
  /** Whether it is signed in with a second factor; not unless set. */
  secondFactor?: boolean;
  /** The hash that the sign-in's password was compared with; undefined for a sign-in without one, by a provider. */
  passwordHash: string | undefined;
  /** The account at a provider that signs in; undefined for a sign-in with a password. */
  identity?: { issuer: string; subject: string } | undefined;
  createdAt: Date;
  expiresAt: Date;
  refreshTokenHash: Uint8Array;
  refreshTokenExpiresAt: Date;
  events: readonly StagedEvent[];
}

/** A refresh token that is presented, and what the session becomes with it. */
export interface Refresh {
  presentedHash: Uint8Array;
  successorHash: Uint8Array;
  client: ClientInfo;
  /** Published when the token was used before, which ends the session. */
  eventsOfReuse: readonly StagedEvent[];
}

/** What was granted for a refresh token. */
export type Refreshed =
  | {
      outcome: "refreshed";
      sessionId: string;
      userId: string;
      operator: boolean;
      /** Whether the session was signed in with a second factor that the user still has. */
      secondFactor: boolean;
      refreshTokenExpiresAt: Date;
    }
  | { outcome: "bad" }
  /** The token was used before: its session is ended now. */
  | { outcome: "reused"; sessionId: string };

interface SessionLifetime {
  /** No refresh token of the session is valid after this. */
  expiresAt: Date;
  endedAt: Date | undefined;
}

interface RefreshToken {
  expiresAt: Date;
  usedAt: Date | undefined;
}

/** What a refresh is decided by. */
export interface RefreshState {
  session: SessionLifetime & { id: string; userId: string; operator: boolean; secondFactor: boolean };
  presented: RefreshToken;
  /** The token that follows the presented one, once it was presented before. */
  successor: RefreshToken | undefined;
}

/** The answer to a refresh token, and the change that goes with it, if any. */
export interface RefreshDecision {
  refreshed: Refreshed;
  change?:
    | { type: "end_session"; sessionId: string }
    /** The presented token is used now, and its successor is valid until then. */
    | { type: "rotate"; sessionId: string; expiresAt: Date };
}

/** Since when a sign-in is recent. */
export function recentSignInStart(now: Date): Date {
  return addMs(now, -recentSignInMs);
}

/** The token that follows the presented one. Derived, so a retry gets the same one though only hashes are stored. */
export function successorOf(presented: string, sessionId: string, serverKey: Uint8Array): string {
  return createHmac("sha256", serverKey).update(`${sessionId}\n${presented}`).digest("base64url");
}

export function refreshTokenExpiry(session: Pick<SessionLifetime, "expiresAt">, now: Date): Date {
  return new Date(Math.min(now.getTime() + refreshTokenSeconds * 1000, session.expiresAt.getTime()));
}

/**
 * Decides about a presented refresh token. A fresh one is rotated. A client that lost the answer may present it again,
 * and gets the successor that it has. Presented again otherwise, it was stolen, from its owner or by its presenter: the
 * session ends. Any other token is bad.
 */
export function decideRefresh(state: RefreshState | undefined, now: Date): RefreshDecision {
  const bad: RefreshDecision = { refreshed: { outcome: "bad" } };
  if (!state) return bad;
  const { session, presented, successor } = state;
  const { id: sessionId, userId, operator, secondFactor } = session;
  const until = (refreshTokenExpiresAt: Date) =>
    ({ outcome: "refreshed", sessionId, userId, operator, secondFactor, refreshTokenExpiresAt }) as const;
  if (session.endedAt !== undefined || session.expiresAt <= now) return bad;
  if (presented.usedAt === undefined) {
    if (presented.expiresAt <= now) return bad;
    const expiresAt = refreshTokenExpiry(session, now);
    return { refreshed: until(expiresAt), change: { type: "rotate", sessionId, expiresAt } };
  }
  // Whoever used the successor had the answer and has no reason to retry.
  if (now > addMs(presented.usedAt, retryGraceMs) || successor?.usedAt !== undefined) {
    return { refreshed: { outcome: "reused", sessionId }, change: { type: "end_session", sessionId } };
  }
  return successor ? { refreshed: until(successor.expiresAt) } : bad;
}
