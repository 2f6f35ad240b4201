import type { Transaction } from "@sandgate/kit/storage/sqlite";
import type { NewMail } from "./store.ts";

/** Commits a mail to the user, which is due at once. */
export function addMail(tx: Transaction, userId: string, mail: NewMail, now: Date): void {
  tx.db.run(
    "INSERT INTO mails (id, user_id, sealed, attempts, created_at, due_at) VALUES (?, ?, ?, 0, ?, ?)",
    mail.id,
    userId,
    mail.sealed,
    now,
    now,
  );
}
