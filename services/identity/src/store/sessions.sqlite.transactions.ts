import { toOptionalDate } from "@sandgate/kit/base/time";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { decideRefresh, type NewSession, type Refresh, type Refreshed, type RefreshState } from "../domain/sessions.ts";

/** Ends the user's sessions but one, or all, and returns the ids of those that it ended. */
export function endSessionsOf(tx: Transaction, userId: string, now: Date, keptSessionId?: string): string[] {
  return tx.db
    .all<{ id: string }>(
      "UPDATE sessions SET ended_at = ? WHERE user_id = ? AND ended_at IS NULL AND id IS NOT ? RETURNING id",
      now,
      userId,
      keptSessionId,
    )
    .map(({ id }) => id);
}

function addRefreshToken(tx: Transaction, tokenHash: Uint8Array, sessionId: string, expiresAt: Date): void {
  tx.db.run(
    "INSERT INTO refresh_tokens (token_hash, session_id, expires_at) VALUES (?, ?, ?)",
    tokenHash,
    sessionId,
    expiresAt,
  );
}

function createSession(tx: Transaction, session: NewSession): boolean {
  const { userId, passwordHash } = session;
  const user = tx.db.get(
    "SELECT 1 FROM users WHERE id = :id AND disabled_at IS NULL AND (:hash IS NULL OR password_hash = :hash)",
    { id: userId, hash: passwordHash },
  );
  if (!user) return false;
  tx.db.run(
    `INSERT INTO sessions (id, user_id, second_factor, created_at, expires_at, idle_at, seen_at, address, user_agent)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    session.id,
    userId,
    session.secondFactor ?? false,
    session.createdAt,
    session.expiresAt,
    session.refreshTokenExpiresAt,
    session.createdAt,
    session.client.address,
    session.client.userAgent,
  );
  addRefreshToken(tx, session.refreshTokenHash, session.id, session.refreshTokenExpiresAt);
  tx.publish(session.events);
  return true;
}

interface RefreshTokenRow {
  session_id: string;
  expires_at: number;
  used_at: number | null;
}

function readRefreshToken(tx: Transaction, tokenHash: Uint8Array) {
  const row = tx.db.get<RefreshTokenRow>(
    "SELECT session_id, expires_at, used_at FROM refresh_tokens WHERE token_hash = ?",
    tokenHash,
  );
  return row && { sessionId: row.session_id, expiresAt: new Date(row.expires_at), usedAt: toOptionalDate(row.used_at) };
}

function readRefreshState(tx: Transaction, { presentedHash, successorHash }: Refresh): RefreshState | undefined {
  const presented = readRefreshToken(tx, presentedHash);
  const row =
    presented &&
    tx.db.get<{
      user_id: string;
      operator: number;
      second_factor: number;
      expires_at: number;
      ended_at: number | null;
    }>(
      `SELECT s.user_id, u.operator, s.second_factor, s.expires_at, s.ended_at
       FROM sessions s JOIN users u ON u.id = s.user_id WHERE s.id = ?`,
      presented.sessionId,
    );
  return (
    row && {
      session: {
        id: presented.sessionId,
        userId: row.user_id,
        operator: row.operator === 1,
        secondFactor: row.second_factor === 1,
        expiresAt: new Date(row.expires_at),
        endedAt: toOptionalDate(row.ended_at),
      },
      presented,
      successor: readRefreshToken(tx, successorHash),
    }
  );
}

function rotateRefreshToken(tx: Transaction, refresh: Refresh, now: Date): Refreshed {
  const { refreshed, change } = decideRefresh(readRefreshState(tx, refresh), now);
  if (change?.type === "end_session") {
    tx.db.run("UPDATE sessions SET ended_at = ? WHERE id = ?", now, change.sessionId);
    tx.publish(refresh.eventsOfReuse);
  }
  if (change?.type === "rotate") {
    const { sessionId, expiresAt } = change;
    const { address, userAgent } = refresh.client;
    tx.db.run("UPDATE refresh_tokens SET used_at = ? WHERE token_hash = ?", now, refresh.presentedHash);
    addRefreshToken(tx, refresh.successorHash, sessionId, expiresAt);
    tx.db.run(
      "UPDATE sessions SET idle_at = ?, seen_at = ?, address = ?, user_agent = ? WHERE id = ?",
      expiresAt,
      now,
      address,
      userAgent,
      sessionId,
    );
  }
  return refreshed;
}

function endSessionOfToken(
  tx: Transaction,
  refreshTokenHash: Uint8Array,
  now: Date,
  events: readonly StagedEvent[],
): string | undefined {
  const ended = tx.db.get<{ id: string }>(
    `UPDATE sessions SET ended_at = ?
     WHERE ended_at IS NULL AND id = (SELECT session_id FROM refresh_tokens WHERE token_hash = ?)
     RETURNING id`,
    now,
    refreshTokenHash,
  );
  if (ended) tx.publish(events);
  return ended?.id;
}

function endSession(
  tx: Transaction,
  userId: string,
  sessionId: string,
  now: Date,
  events: readonly StagedEvent[],
): boolean {
  const ended = tx.db.run(
    "UPDATE sessions SET ended_at = ? WHERE id = ? AND user_id = ? AND ended_at IS NULL AND idle_at > ?",
    now,
    sessionId,
    userId,
    now,
  );
  if (ended > 0) tx.publish(events);
  return ended > 0;
}

function endOtherSessions(
  tx: Transaction,
  userId: string,
  keptSessionId: string | undefined,
  now: Date,
  events: readonly StagedEvent[],
): string[] {
  const ended = endSessionsOf(tx, userId, now, keptSessionId);
  if (ended.length > 0) tx.publish(events);
  return ended;
}

export const sessionTransactions = {
  createSession,
  rotateRefreshToken,
  endSessionOfToken,
  endSession,
  endOtherSessions,
} satisfies Transactions;
