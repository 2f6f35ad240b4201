import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { type Account, isLastOperator, type NewUser, type User } from "../domain/users.ts";
import { endSessionsOf } from "./sessions.sqlite.transactions.ts";
import { insert, type TransactionOf } from "./transaction.sqlite.ts";
import type { Users } from "./users.ts";

export const userColumns = "id, username, verified_at, operator, disabled_at, created_at";

export interface UserRow {
  id: string;
  username: string;
  verified_at: number | null;
  operator: number;
  disabled_at: number | null;
  created_at: number;
}

export function toUser(row: UserRow): User {
  return {
    id: row.id,
    username: row.username,
    verified: row.verified_at !== null,
    operator: row.operator === 1,
    disabled: row.disabled_at !== null,
    createdAt: new Date(row.created_at),
  };
}

export function readAccount(db: Transaction["db"], who: { id: string } | { usernameKey: string }): Account | undefined {
  const [column, value] = "id" in who ? ["id", who.id] : ["username_key", who.usernameKey];
  const row = db.get<UserRow & { password_hash: string | null }>(
    `SELECT ${userColumns}, password_hash FROM users WHERE ${column} = ?`,
    value,
  );
  return row && { user: toUser(row), passwordHash: row.password_hash ?? undefined };
}

export function insertUser(tx: Transaction, user: NewUser): void {
  insert(tx, "users", {
    id: user.id,
    username: user.username,
    username_key: user.usernameKey,
    password_hash: user.passwordHash,
    verified_at: user.verifiedAt,
    operator: user.operator,
    version: 1,
    created_at: user.createdAt,
  });
}

export function markVerified(tx: Transaction, userId: string, now: Date): void {
  tx.db.run("UPDATE users SET verified_at = ?, version = version + 1 WHERE id = ?", now, userId);
}

const tablesOfUsers = [
  "verifications",
  "password_resets",
  "api_tokens",
  "mails",
  "external_identities",
  "removed_identities",
  "known_networks",
  "second_factors",
  "recovery_codes",
];

function isLast(tx: Transaction, user: User): boolean {
  const other = tx.db.get(
    "SELECT 1 FROM users WHERE operator = 1 AND disabled_at IS NULL AND id <> ? LIMIT 1",
    user.id,
  );
  return isLastOperator(user, other !== undefined);
}

export const deleteUser: TransactionOf<Users["delete"]> = (tx, userId, events, now) => {
  const account = readAccount(tx.db, { id: userId });
  if (!account) return undefined;
  if (isLast(tx, account.user)) return "last_operator";
  for (const table of tablesOfUsers) tx.db.run(`DELETE FROM ${table} WHERE user_id = ?`, userId);
  tx.db.run("DELETE FROM users WHERE id = ?", userId);
  tx.publish(events);
  return endSessionsOf(tx, userId, now);
};

const createFirstOperator: TransactionOf<Users["createFirstOperator"]> = (tx, { user, events }) => {
  if (tx.db.get("SELECT 1 FROM users WHERE operator = 1 LIMIT 1")) return false;
  insertUser(tx, user);
  tx.publish(events);
  return true;
};

const makeOperator: TransactionOf<Users["makeOperator"]> = (tx, userId, events) => {
  const row = tx.db.get<UserRow>(
    `UPDATE users SET operator = 1, version = version + 1 WHERE id = ? AND verified_at IS NOT NULL AND disabled_at IS NULL
     RETURNING ${userColumns}`,
    userId,
  );
  if (!row) return undefined;
  tx.publish(events);
  return toUser(row);
};

const setUserDisabled: TransactionOf<Users["setDisabled"]> = (tx, userId, disabled, now, events) => {
  const account = readAccount(tx.db, { id: userId });
  if (!account) return undefined;
  if (disabled && isLast(tx, account.user)) return "last_operator";
  const row = tx.db.get<UserRow>(
    `UPDATE users SET disabled_at = CASE WHEN ? THEN coalesce(disabled_at, ?) END, version = version + 1
     WHERE id = ? RETURNING ${userColumns}`,
    disabled,
    now,
    userId,
  );
  if (!row) return undefined;
  tx.publish(events);
  return { user: toUser(row), endedSessionIds: disabled ? endSessionsOf(tx, userId, now) : [] };
};

export const userTransactions = {
  createFirstOperator,
  makeOperator,
  setUserDisabled,
  deleteUser,
} satisfies Transactions;
