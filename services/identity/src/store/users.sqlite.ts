import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import { readAccount, toUser, type UserRow, userColumns, type userTransactions } from "./users.sqlite.transactions.ts";
import type { Users } from "./users.ts";

export function createUsers({ read, write }: SqliteDatabase<typeof userTransactions>): Users {
  return {
    createFirstOperator: write.createFirstOperator,
    makeOperator: write.makeOperator,
    setDisabled: write.setUserDisabled,
    delete: write.deleteUser,

    async hasOperator() {
      return read.get("SELECT 1 FROM users WHERE operator = 1 LIMIT 1") !== undefined;
    },

    async findAccount(who) {
      return readAccount(read, who);
    },

    async find(ids, usernameKeys) {
      const rows = read.all<UserRow>(
        `SELECT ${userColumns} FROM users
         WHERE id IN (SELECT value FROM json_each(?)) OR username_key IN (SELECT value FROM json_each(?))`,
        JSON.stringify(ids),
        JSON.stringify(usernameKeys),
      );
      return rows.map(toUser);
    },

    async list(usernameKey, limit, before) {
      const named = usernameKey === undefined ? "" : "username_key = :usernameKey AND";
      const rows = read.all<UserRow>(
        `SELECT ${userColumns} FROM users WHERE ${named} (created_at, id) < (:before, :id)
         ORDER BY created_at DESC, id DESC LIMIT :limit`,
        {
          ...(usernameKey !== undefined && { usernameKey }),
          before: before?.createdAt ?? Number.MAX_SAFE_INTEGER,
          id: before?.id ?? "",
          limit,
        },
      );
      return rows.map(toUser);
    },
  };
}
