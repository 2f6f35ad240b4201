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
      return read.get<{ userId: string; username: string }>(
        `SELECT u.id AS userId, u.username FROM verifications v JOIN users u ON u.id = v.user_id
         WHERE v.token_hash = ? AND v.expires_at > ?`,
        tokenHash,
        now,
      );
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
