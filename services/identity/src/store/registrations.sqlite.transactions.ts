import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import {
  decideRegistration,
  decideVerification,
  isAbandoned,
  type NewVerification,
  type Registration,
  type StoredVerification,
} from "../domain/registrations.ts";
import { addMail } from "./mails.sqlite.transactions.ts";
import { setPassword } from "./passwords.sqlite.transactions.ts";
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
  tx.db.run(
    "INSERT INTO verifications (token_hash, user_id, password_hash, expires_at) VALUES (?, ?, ?, ?)",
    tokenHash,
    userId,
    passwordHash,
    expiresAt,
  );
  addMail(tx, userId, mail, now);
}

function registerUser(tx: Transaction, registration: Registration): "created" | "renewed" | "taken" {
  const { passwordHash, createdAt } = registration;
  const holder = readAccount(tx.db, { usernameKey: registration.usernameKey })?.user;
  const { outcome, userId, created, verification, notice, events } = decideRegistration(holder, registration);
  if (created) insertUser(tx, created);
  if (verification) addVerification(tx, userId, passwordHash, verification, createdAt);
  if (notice) addMail(tx, userId, notice, createdAt);
  tx.publish(events);
  return outcome;
}

function renewVerification(tx: Transaction, userId: string, verification: NewVerification, now: Date): boolean {
  const account = readAccount(tx.db, { id: userId });
  if (!account || account.user.verified) return false;
  addVerification(tx, userId, undefined, verification, now);
  return true;
}

function verifyUser(
  tx: Transaction,
  tokenHash: Uint8Array,
  givenHash: string | undefined,
  now: Date,
  events: readonly StagedEvent[],
): string[] | undefined {
  const decided = decideVerification(readVerification(tx, tokenHash, now), givenHash);
  if (!decided) return undefined;
  markVerified(tx, decided.userId, now);
  tx.publish(events);
  return setPassword(tx, decided.userId, decided.passwordHash, now);
}

function deleteAbandonedUser(tx: Transaction, userId: string, events: readonly StagedEvent[], now: Date): boolean {
  const account = readAccount(tx.db, { id: userId });
  const link = tx.db.get("SELECT 1 FROM verifications WHERE user_id = ? AND expires_at > ? LIMIT 1", userId, now);
  if (!account || !isAbandoned(account.user, link !== undefined)) return false;
  return Array.isArray(deleteUser(tx, userId, events, now));
}

export const registrationTransactions = {
  registerUser,
  renewVerification,
  verifyUser,
  deleteAbandonedUser,
} satisfies Transactions;
