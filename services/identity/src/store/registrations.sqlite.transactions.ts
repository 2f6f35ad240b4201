import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { decideRegistration, isAbandoned, type NewVerification } from "../domain/registrations.ts";
import { addMail } from "./mails.sqlite.transactions.ts";
import { setPassword } from "./passwords.sqlite.transactions.ts";
import type { Registrations } from "./registrations.ts";
import { insert, type TransactionOf } from "./transaction.sqlite.ts";
import { deleteUser, insertUser, markVerified, readAccount } from "./users.sqlite.transactions.ts";

function addVerification(
  tx: Transaction,
  userId: string,
  { tokenHash, expiresAt, mail }: NewVerification,
  now: Date,
): void {
  insert(tx, "verifications", { token_hash: tokenHash, user_id: userId, expires_at: expiresAt });
  addMail(tx, userId, mail, now);
}

const registerUser: TransactionOf<Registrations["register"]> = (tx, registration) => {
  const { createdAt } = registration;
  const holder = readAccount(tx.db, { usernameKey: registration.usernameKey })?.user;
  const { outcome, userId, created, verification, notice, events } = decideRegistration(holder, registration);
  if (created) insertUser(tx, created);
  if (verification) addVerification(tx, userId, verification, createdAt);
  if (notice) addMail(tx, userId, notice, createdAt);
  tx.publish(events);
  return outcome;
};

const renewVerification: TransactionOf<Registrations["renew"]> = (tx, userId, verification, now) => {
  const account = readAccount(tx.db, { id: userId });
  if (!account || account.user.verified) return false;
  addVerification(tx, userId, verification, now);
  return true;
};

const verifyUser: TransactionOf<Registrations["verify"]> = (tx, tokenHash, passwordHash, now, events) => {
  const link = tx.db.get<{ userId: string }>(
    "SELECT user_id AS userId FROM verifications WHERE token_hash = ? AND expires_at > ?",
    tokenHash,
    now,
  );
  if (!link) return undefined;
  markVerified(tx, link.userId, now);
  tx.publish(events);
  return setPassword(tx, link.userId, passwordHash, now);
};

const deleteAbandonedUser: TransactionOf<Registrations["deleteAbandoned"]> = (tx, userId, events, now) => {
  const account = readAccount(tx.db, { id: userId });
  const link = tx.db.get("SELECT 1 FROM verifications WHERE user_id = ? AND expires_at > ? LIMIT 1", userId, now);
  if (!account || !isAbandoned(account.user, link !== undefined)) return false;
  return Array.isArray(deleteUser(tx, userId, events, now));
};

export const registrationTransactions = {
  registerUser,
  renewVerification,
  verifyUser,
  deleteAbandonedUser,
} satisfies Transactions;
