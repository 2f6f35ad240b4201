import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import type { passwordTransactions } from "./passwords.sqlite.transactions.ts";
import type { Passwords } from "./passwords.ts";

export function createPasswords({ read, write }: SqliteDatabase<typeof passwordTransactions>): Passwords {
  return {
    addReset: write.addPasswordReset,
    reset: write.resetPassword,
    change: write.changePassword,

    async findReset(tokenHash, now) {
      return read.get<{ userId: string; username: string }>(
        `SELECT u.id AS userId, u.username FROM password_resets r JOIN users u ON u.id = r.user_id
         WHERE r.token_hash = ? AND r.expires_at > ?`,
        tokenHash,
        now,
      );
    },
  };
}
