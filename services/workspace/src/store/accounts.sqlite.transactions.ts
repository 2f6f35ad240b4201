import type { Transaction, TransactionOf } from "@sandgate/kit/storage/sqlite";
import type { AccountState } from "../domain/accounts.ts";
import type { Accounts } from "./accounts.ts";

/** @param maxOwned the user's quota of workspaces */
export function readAccount({ db }: Transaction, userId: string, maxOwned = 0): AccountState {
  return {
    deleted: db.get("SELECT 1 FROM departed_users WHERE user_id = ?", userId) !== undefined,
    hadPersonalWorkspace: db.get("SELECT 1 FROM personal_workspaces WHERE user_id = ?", userId) !== undefined,
    owned: db.all("SELECT 1 FROM workspaces WHERE charged_to = ? LIMIT ?", userId, maxOwned).length,
  };
}

export const accountTransactions = {
  markAccountDeleted(tx, userId, at) {
    tx.db.run("INSERT OR IGNORE INTO departed_users (user_id, departed_at) VALUES (?, ?)", userId, at);
  },
} satisfies { markAccountDeleted: TransactionOf<Accounts["markDeleted"]> };
