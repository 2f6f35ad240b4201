import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import type { NewPasswordReset, PasswordChange } from "../domain/passwords.ts";
import { addMail } from "./mails.sqlite.transactions.ts";
import { endSessionsOf } from "./sessions.sqlite.transactions.ts";
import { readAccount } from "./users.sqlite.transactions.ts";

/** Sets a password, or none, ends all links and sessions of the user but one, and returns the ids of the sessions that it ended. */
export function setPassword(
  tx: Transaction,
  userId: string,
  passwordHash: string | undefined,
  now: Date,
  keptSessionId?: string,
): string[] {
  tx.db.run("UPDATE users SET password_hash = ? WHERE id = ?", passwordHash, userId);
  for (const table of ["verifications", "password_resets", "known_networks"]) {
    tx.db.run(`DELETE FROM ${table} WHERE user_id = ?`, userId);
  }
  return endSessionsOf(tx, userId, now, keptSessionId);
}

function applyChange(
  tx: Transaction,
  userId: string,
  { passwordHash, noticeMail, events }: PasswordChange,
  now: Date,
  keptSessionId?: string,
): string[] {
  addMail(tx, userId, noticeMail, now);
  tx.publish(events);
  return setPassword(tx, userId, passwordHash, now, keptSessionId);
}

function addPasswordReset(tx: Transaction, userId: string, reset: NewPasswordReset, now: Date): boolean {
  if (!readAccount(tx.db, { id: userId })?.user.verified) return false;
  tx.db.run(
    "INSERT INTO password_resets (token_hash, user_id, expires_at) VALUES (?, ?, ?)",
    reset.tokenHash,
    userId,
    reset.expiresAt,
  );
  addMail(tx, userId, reset.mail, now);
  return true;
}

function resetPassword(
  tx: Transaction,
  tokenHash: Uint8Array,
  change: PasswordChange,
  now: Date,
): string[] | undefined {
  const reset = tx.db.get<{ user_id: string }>(
    "SELECT user_id FROM password_resets WHERE token_hash = ? AND expires_at > ?",
    tokenHash,
    now,
  );
  return reset && applyChange(tx, reset.user_id, change, now);
}

function changePassword(
  tx: Transaction,
  { id, currentHash, sessionId }: { id: string; currentHash: string; sessionId: string },
  change: PasswordChange,
  now: Date,
): string[] | undefined {
  if (readAccount(tx.db, { id })?.passwordHash !== currentHash) return undefined;
  return applyChange(tx, id, change, now, sessionId);
}

export const passwordTransactions = { addPasswordReset, resetPassword, changePassword } satisfies Transactions;
