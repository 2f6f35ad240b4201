import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import type { registrationTransactions } from "./registrations.sqlite.transactions.ts";
import type { Registrations } from "./registrations.ts";

export function createRegistrations({ read, write }: SqliteDatabase<typeof registrationTransactions>): Registrations {
  return {
    register: write.registerUser,
    renew: write.renewVerification,
    verify: write.verifyUser,
    deleteAbandoned: write.deleteAbandonedUser,

    async findVerification(tokenHash, now) {
      const row = read.get<{ id: string; username: string; has_password: number }>(
        `SELECT u.id, u.username, v.password_hash IS NOT NULL AS has_password
         FROM verifications v JOIN users u ON u.id = v.user_id WHERE v.token_hash = ? AND v.expires_at > ?`,
        tokenHash,
        now,
      );
      return row && { userId: row.id, username: row.username, hasPassword: row.has_password === 1 };
    },

    async listAbandoned(registeredBefore, now, limit) {
      return read
        .all<{ id: string }>(
          `SELECT id FROM users u WHERE verified_at IS NULL AND created_at < ?
             AND NOT EXISTS (SELECT 1 FROM verifications WHERE user_id = u.id AND expires_at > ?)
           ORDER BY created_at LIMIT ?`,
          registeredBefore,
          now,
          limit,
        )
        .map(({ id }) => id);
    },
  };
}
