import type { Transaction } from "@sandgate/kit/storage/sqlite";

/**
 * Sets a password, or none, and ends all links and sessions of the user but one, and returns the ids of those that it ended.
 */
export function setPassword(
  tx: Transaction,
  userId: string,
  passwordHash: string | null,
  now: Date,
  keptSession?: string,
): string[] {
  tx.db.run("UPDATE users SET password_hash = ? WHERE id = ?", passwordHash, userId);
  tx.db.run("DELETE FROM verifications WHERE user_id = ?", userId);
  tx.db.run("DELETE FROM password_resets WHERE user_id = ?", userId);
  tx.db.run("DELETE FROM known_networks WHERE user_id = ?", userId);
  return endOtherSessions(tx, userId, keptSession, now);
}

/** Ends the user's sessions but one, and returns the ids of those that it ended. */
export function endOtherSessions(
  tx: Transaction,
  userId: string,
  keptSessionId: string | undefined,
  now: Date,
): string[] {
  return tx.db
    .all<{ id: string }>(
      "UPDATE sessions SET ended_at = ? WHERE user_id = ? AND ended_at IS NULL AND id IS NOT ? RETURNING id",
      now,
      userId,
      keptSessionId,
    )
    .map(({ id }) => id);
}
