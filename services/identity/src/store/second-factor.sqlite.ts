import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import type { secondFactorTransactions } from "./second-factor.sqlite.transactions.ts";
import type { SecondFactorStore } from "./second-factor.ts";

/** A step of a migration. */
export const secondFactorMigration = `CREATE TABLE second_factors (
     id TEXT PRIMARY KEY,
     user_id TEXT NOT NULL UNIQUE,
     sealed BLOB NOT NULL,
     -- Until when it is pending, and since when it is enabled.
     expires_at INTEGER,
     enabled_at INTEGER,
     last_step INTEGER NOT NULL DEFAULT 0,
     attempts INTEGER NOT NULL DEFAULT 0,
     refused_until INTEGER
   ) STRICT;
   CREATE INDEX second_factors_expiry ON second_factors (expires_at) WHERE expires_at IS NOT NULL;
   CREATE TABLE recovery_codes (
     user_id TEXT NOT NULL,
     code_hash BLOB NOT NULL,
     PRIMARY KEY (user_id, code_hash)
   ) STRICT, WITHOUT ROWID;
   ALTER TABLE sessions ADD COLUMN second_factor INTEGER NOT NULL DEFAULT 0;`;

/** The part of the store that second factors use. */
export function createSecondFactorStore({
  read,
  write,
}: Pick<SqliteDatabase<typeof secondFactorTransactions>, "read" | "write">): SecondFactorStore {
  return {
    addSecondFactor: write.addSecondFactor,
    enableSecondFactor: write.enableSecondFactor,
    beginOtpAttempt: write.beginOtpAttempt,
    acceptOtp: write.acceptOtp,
    useRecoveryCode: write.useRecoveryCode,
    replaceRecoveryCodes: write.replaceRecoveryCodes,
    removeSecondFactor: write.removeSecondFactor,

    async findSecondFactor(userId) {
      const row = read.get<{ left: number }>(
        `SELECT (SELECT count(*) FROM recovery_codes c WHERE c.user_id = f.user_id) AS left
         FROM second_factors f WHERE f.user_id = ? AND f.enabled_at IS NOT NULL`,
        userId,
      );
      return row && { recoveryCodesLeft: row.left };
    },

    async findPendingSecondFactor(userId, now) {
      return read.get<{ id: string; sealed: Uint8Array }>(
        "SELECT id, sealed FROM second_factors WHERE user_id = ? AND expires_at > ?",
        userId,
        now,
      );
    },
  };
}
