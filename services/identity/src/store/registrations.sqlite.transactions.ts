import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import {
  decideRegistration,
  decideVerification,
  isAbandoned,
  type NewVerification,
  type StoredVerification,
} from "../domain/registrations.ts";
import { addMail } from "./mails.sqlite.transactions.ts";
import { setPassword } from "./passwords.sqlite.transactions.ts";
import type { Registrations } from "./registrations.ts";
import { insert, type TransactionOf } from "./transaction.sqlite.ts";
import { deleteUser, insertUser, markVerified, readAccount } from "./users.sqlite.transactions.ts";

function readVerification(tx: Transaction, tokenHash: Uint8Array, now: Date): StoredVerification | undefined {
  const row = tx.db.get<{ user_id: string; password_hash: string | null }>(
    "SELECT user_id, password_hash FROM verifications WHERE token_hash = ? AND expires_at > ?",
    tokenHash,
    now,
  );
  return row && { userId: row.user_id, passwordHash: row.password_hash ?? undefined };
}

function addVerification(
  tx: Transaction,
  userId: string,
  passwordHash: string | undefined,
  { tokenHash, expiresAt, mail }: NewVerification,
  now: Date,
): void {
  const row = { token_hash: tokenHash, user_id: userId, password_hash: passwordHash, expires_at: expiresAt };
  insert(tx, "verifications", row);
  addMail(tx, userId, mail, now);
}

const registerUser: TransactionOf<Registrations["register"]> = (tx, registration) => {
  const { passwordHash, createdAt } = registration;
  const holder = readAccount(tx.db, { usernameKey: registration.usernameKey })?.user;
  const { outcome, userId, created, verification, notice, events } = decideRegistration(holder, registration);
  if (created) insertUser(tx, created);
  if (verification) addVerification(tx, userId, passwordHash, verification, createdAt);
  if (notice) addMail(tx, userId, notice, createdAt);
  tx.publish(events);
  return outcome;
};

const renewVerification: TransactionOf<Registrations["renew"]> = (tx, userId, verification, now) => {
  const account = readAccount(tx.db, { id: userId });
  if (!account || account.user.verified) return false;
  addVerification(tx, userId, undefined, verification, now);
  return true;
};

const verifyUser: TransactionOf<Registrations["verify"]> = (tx, tokenHash, givenHash, now, events) => {
  const decided = decideVerification(readVerification(tx, tokenHash, now), givenHash);
  if (!decided) return undefined;
  markVerified(tx, decided.userId, now);
  tx.publish(events);
  return setPassword(tx, decided.userId, decided.passwordHash, now);
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
