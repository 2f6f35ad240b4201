import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import type { accountTransactions } from "./accounts.sqlite.transactions.ts";
import type { Accounts } from "./accounts.ts";

export function createAccounts({ read, write }: SqliteDatabase<typeof accountTransactions>): Accounts {
  return {
    markDeleted: write.markAccountDeleted,
    forgetDeletedBefore: write.forgetDeletedBefore,

    async hadPersonalWorkspace(userId) {
      return read.get("SELECT 1 FROM personal_workspaces WHERE user_id = ?", userId) !== undefined;
    },
  };
}
