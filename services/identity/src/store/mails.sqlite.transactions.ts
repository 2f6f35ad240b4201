import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import type { DueMail, NewMail } from "../domain/mails.ts";

/** Commits a mail to the user, which is due at once. */
export function addMail(tx: Transaction, userId: string, { id, sealed }: NewMail, now: Date): void {
  tx.db.run(
    "INSERT INTO mails (id, user_id, sealed, attempts, created_at, due_at) VALUES (?, ?, ?, 0, ?, ?)",
    id,
    userId,
    sealed,
    now,
    now,
  );
}

function takeDueMails(tx: Transaction, now: Date, leasedUntil: Date, limit: number): DueMail[] {
  const mails = tx.db.all<{ id: string; sealed: Uint8Array; attempts: number }>(
    "SELECT id, sealed, attempts FROM mails WHERE due_at <= ? AND sealed IS NOT NULL ORDER BY due_at, id LIMIT ?",
    now,
    limit,
  );
  for (const { id } of mails) {
    tx.db.run("UPDATE mails SET due_at = ?, attempts = attempts + 1 WHERE id = ?", leasedUntil, id);
  }
  return mails;
}

function finishMail(tx: Transaction, id: string): void {
  tx.db.run("UPDATE mails SET sealed = NULL, due_at = NULL WHERE id = ?", id);
}

function postponeMail(tx: Transaction, id: string, until: Date): void {
  tx.db.run("UPDATE mails SET due_at = ? WHERE id = ? AND sealed IS NOT NULL", until, id);
}

export const mailTransactions = { takeDueMails, finishMail, postponeMail } satisfies Transactions;
