import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import type { PasswordChange } from "../domain/passwords.ts";
import { revokeApiTokensOf } from "./api-tokens.sqlite.transactions.ts";
import { addMail } from "./mails.sqlite.transactions.ts";
import type { Passwords } from "./passwords.ts";
import { endSessionsOf } from "./sessions.sqlite.transactions.ts";
import { insert, type TransactionOf } from "./transaction.sqlite.ts";
import { readAccount } from "./users.sqlite.transactions.ts";

/**
 * Sets a password, or none, ends all links and sessions of the user but one, drops a second factor that isn't
 * confirmed, and returns the ids of the sessions that it ended.
 */
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
  tx.db.run("DELETE FROM second_factors WHERE user_id = ? AND enabled_at IS NULL", userId);
  return endSessionsOf(tx, userId, now, keptSessionId);
}

function applyChange(
  tx: Transaction,
  userId: string,
  { passwordHash, revokesApiTokens, noticeMail, events }: PasswordChange,
  now: Date,
  keptSessionId?: string,
): string[] {
  addMail(tx, userId, noticeMail, now);
  tx.publish(events);
  if (revokesApiTokens) revokeApiTokensOf(tx, userId);
  return setPassword(tx, userId, passwordHash, now, keptSessionId);
}

const addPasswordReset: TransactionOf<Passwords["addReset"]> = (tx, userId, { tokenHash, expiresAt, mail }, now) => {
  if (!readAccount(tx.db, { id: userId })?.user.verified) return false;
  insert(tx, "password_resets", { token_hash: tokenHash, user_id: userId, expires_at: expiresAt });
  addMail(tx, userId, mail, now);
  return true;
};

const resetPassword: TransactionOf<Passwords["reset"]> = (tx, tokenHash, change, now) => {
  const reset = tx.db.get<{ user_id: string }>(
    "SELECT user_id FROM password_resets WHERE token_hash = ? AND expires_at > ?",
    tokenHash,
    now,
  );
  return reset && applyChange(tx, reset.user_id, change, now);
};

const changePassword: TransactionOf<Passwords["change"]> = (tx, { id, currentHash, sessionId }, change, now) =>
  readAccount(tx.db, { id })?.passwordHash === currentHash ? applyChange(tx, id, change, now, sessionId) : undefined;

export const passwordTransactions = { addPasswordReset, resetPassword, changePassword } satisfies Transactions;
