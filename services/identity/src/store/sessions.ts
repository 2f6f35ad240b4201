import type { Cursor } from "@sandgate/kit/base/page";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { NewSession, Refresh, Refreshed, Session } from "../domain/sessions.ts";

export interface Sessions {
  /**
   * False, and nothing happens, when the password that was compared has changed since, the link that was used was
   * removed, or the user is disabled or gone.
   */
  create(session: NewSession): Promise<boolean>;
  /** Up to `limit` live sessions of the user after `before`, newest first. */
  list(userId: string, limit: number, before: Cursor | undefined, now: Date): Promise<Session[]>;
  /** When a live session of the user was signed in, and when it expires unless it is refreshed. */
  find(userId: string, sessionId: string, now: Date): Promise<{ createdAt: Date; idleAt: Date } | undefined>;
  /** False when the user has no such live session. */
  end(userId: string, sessionId: string, now: Date, events: readonly StagedEvent[]): Promise<boolean>;
  /** Ends the user's sessions but one, or all, and returns the ids of those that it ended. */
  endOthers(
    userId: string,
    keptSessionId: string | undefined,
    now: Date,
    events: readonly StagedEvent[],
  ): Promise<string[]>;
  /** Ids of sessions that ended after this time. */
  listEndedSince(since: Date): Promise<string[]>;
}

/** The tokens that continue sessions. Those that were used are kept, to notice that a stolen one is presented again. */
export interface RefreshTokens {
  /** The session that a refresh token belongs to, whether or not the token is valid. */
  findSession(refreshTokenHash: Uint8Array): Promise<{ sessionId: string; userId: string } | undefined>;
  /**
   * Replaces a valid refresh token with its successor, or with the same successor again for a retry (`decideRefresh`).
   */
  rotate(refresh: Refresh, now: Date): Promise<Refreshed>;
  /** Ends the token's session and returns its id; undefined for an unknown token or a session that had ended. */
  endSession(refreshTokenHash: Uint8Array, now: Date, events: readonly StagedEvent[]): Promise<string | undefined>;
}
