import { toOptionalDate } from "@sandgate/kit/base/time";
import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { decideRefresh, type Refresh, type RefreshState } from "../domain/sessions.ts";
import type { RefreshTokens, Sessions } from "./sessions.ts";
import { insert, type TransactionOf } from "./transaction.sqlite.ts";

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
  insert(tx, "refresh_tokens", { token_hash: tokenHash, session_id: sessionId, expires_at: expiresAt });
}

const createSession: TransactionOf<Sessions["create"]> = (tx, session) => {
  const { id, userId, passwordHash, identity, createdAt, client } = session;
  const user = tx.db.get(
    `SELECT 1 FROM users WHERE id = :id AND disabled_at IS NULL AND (:hash IS NULL OR password_hash = :hash)
       AND (:issuer IS NULL OR EXISTS
         (SELECT 1 FROM external_identities WHERE issuer = :issuer AND subject = :subject AND user_id = :id))`,
    { id: userId, hash: passwordHash, issuer: identity?.issuer, subject: identity?.subject },
  );
  if (!user) return false;
  insert(tx, "sessions", {
    id,
    user_id: userId,
    second_factor: session.secondFactor ?? false,
    created_at: createdAt,
    expires_at: session.expiresAt,
    idle_at: session.refreshTokenExpiresAt,
    seen_at: createdAt,
    address: client.address,
    user_agent: client.userAgent,
  });
  addRefreshToken(tx, session.refreshTokenHash, id, session.refreshTokenExpiresAt);
  tx.publish(session.events);
  return true;
};

function readRefreshToken(tx: Transaction, tokenHash: Uint8Array) {
  const row = tx.db.get<{ session_id: string; expires_at: number; used_at: number | null }>(
    "SELECT session_id, expires_at, used_at FROM refresh_tokens WHERE token_hash = ?",
    tokenHash,
  );
  if (!row) return undefined;
  return { sessionId: row.session_id, expiresAt: new Date(row.expires_at), usedAt: toOptionalDate(row.used_at) };
}

interface SignedInRow {
  user_id: string;
  operator: number;
  second_factor: number;
  expires_at: number;
  ended_at: number | null;
}

function readRefreshState(tx: Transaction, { presentedHash, successorHash }: Refresh): RefreshState | undefined {
  const presented = readRefreshToken(tx, presentedHash);
  const row =
    presented &&
    tx.db.get<SignedInRow>(
      `SELECT s.user_id, u.operator, s.second_factor, s.expires_at, s.ended_at
       FROM sessions s JOIN users u ON u.id = s.user_id WHERE s.id = ?`,
      presented.sessionId,
    );
  if (!row) return undefined;
  return {
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
  };
}

const rotateRefreshToken: TransactionOf<RefreshTokens["rotate"]> = (tx, refresh, now) => {
  const { refreshed, change } = decideRefresh(readRefreshState(tx, refresh), now);
  if (change?.type === "end_session") {
    tx.db.run("UPDATE sessions SET ended_at = ? WHERE id = ?", now, change.sessionId);
    tx.publish(refresh.eventsOfReuse);
  }
  if (change?.type === "rotate") {
    tx.db.run("UPDATE refresh_tokens SET used_at = ? WHERE token_hash = ?", now, refresh.presentedHash);
    addRefreshToken(tx, refresh.successorHash, change.sessionId, change.expiresAt);
    tx.db.run(
      `UPDATE sessions SET idle_at = :expiresAt, seen_at = :now, address = :address, user_agent = :userAgent
       WHERE id = :sessionId`,
      { sessionId: change.sessionId, expiresAt: change.expiresAt, now, ...refresh.client },
    );
  }
  return refreshed;
};

const endSessionOfToken: TransactionOf<RefreshTokens["endSession"]> = (tx, refreshTokenHash, now, events) => {
  const ended = tx.db.get<{ id: string }>(
    `UPDATE sessions SET ended_at = ?
     WHERE ended_at IS NULL AND id = (SELECT session_id FROM refresh_tokens WHERE token_hash = ?)
     RETURNING id`,
    now,
    refreshTokenHash,
  );
  if (ended) tx.publish(events);
  return ended?.id;
};

const endSession: TransactionOf<Sessions["end"]> = (tx, userId, sessionId, now, events) => {
  const ended = tx.db.run(
    `UPDATE sessions SET ended_at = :now
     WHERE id = :sessionId AND user_id = :userId AND ended_at IS NULL AND idle_at > :now`,
    { userId, sessionId, now },
  );
  if (ended > 0) tx.publish(events);
  return ended > 0;
};

const endOtherSessions: TransactionOf<Sessions["endOthers"]> = (tx, userId, keptSessionId, now, events) => {
  const ended = endSessionsOf(tx, userId, now, keptSessionId);
  if (ended.length > 0) tx.publish(events);
  return ended;
};

export const sessionTransactions = {
  createSession,
  rotateRefreshToken,
  endSessionOfToken,
  endSession,
  endOtherSessions,
} satisfies Transactions;
