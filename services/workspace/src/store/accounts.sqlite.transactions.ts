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

  forgetDeletedBefore(tx, before, limit) {
    const deleted = "SELECT user_id FROM departed_users WHERE departed_at < ? ORDER BY departed_at LIMIT ?";
    tx.db.run(`DELETE FROM personal_workspaces WHERE user_id IN (${deleted})`, before, limit);
    return tx.db.run(`DELETE FROM departed_users WHERE user_id IN (${deleted})`, before, limit);
  },
} satisfies {
  markAccountDeleted: TransactionOf<Accounts["markDeleted"]>;
  forgetDeletedBefore: TransactionOf<Accounts["forgetDeletedBefore"]>;
};
