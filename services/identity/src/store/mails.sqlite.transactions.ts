import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import type { NewMail } from "../domain/mails.ts";
import type { Mails } from "./mails.ts";
import { insert, type TransactionOf } from "./transaction.sqlite.ts";

/** Commits a mail to the user, which is due at once. */
export function addMail(tx: Transaction, userId: string, { id, sealed }: NewMail, now: Date): void {
  insert(tx, "mails", { id, user_id: userId, sealed, attempts: 0, created_at: now, due_at: now });
}

const addMailOnce: TransactionOf<Mails["add"]> = (tx, userId, mail, now) => {
  if (tx.db.get("SELECT 1 FROM mails WHERE id = ?", mail.id) === undefined) addMail(tx, userId, mail, now);
};

const takeDueMails: TransactionOf<Mails["takeDue"]> = (tx, now, leasedUntil, limit) => {
  const mails = tx.db.all<{ id: string; sealed: Uint8Array; attempts: number }>(
    "SELECT id, sealed, attempts FROM mails WHERE due_at <= ? AND sealed IS NOT NULL ORDER BY due_at, rowid LIMIT ?",
    now,
    limit,
  );
  for (const { id } of mails) {
    tx.db.run("UPDATE mails SET due_at = ?, attempts = attempts + 1 WHERE id = ?", leasedUntil, id);
  }
  return mails;
};

const finishMail: TransactionOf<Mails["finish"]> = (tx, id) => {
  tx.db.run("UPDATE mails SET sealed = NULL, due_at = NULL WHERE id = ?", id);
};

const postponeMail: TransactionOf<Mails["postpone"]> = (tx, id, until) => {
  tx.db.run("UPDATE mails SET due_at = ? WHERE id = ? AND sealed IS NOT NULL", until, id);
};

export const mailTransactions = { addMailOnce, takeDueMails, finishMail, postponeMail } satisfies Transactions;
