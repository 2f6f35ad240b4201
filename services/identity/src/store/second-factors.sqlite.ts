import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import type { secondFactorTransactions } from "./second-factors.sqlite.transactions.ts";
import type { OtpAttempts, SecondFactors } from "./second-factors.ts";

type SecondFactorDatabase = SqliteDatabase<typeof secondFactorTransactions>;

export function createSecondFactors({ read, write }: SecondFactorDatabase): SecondFactors {
  return {
    add: write.addSecondFactor,
    enable: write.enableSecondFactor,
    replaceRecoveryCodes: write.replaceRecoveryCodes,
    remove: write.removeSecondFactor,

    async find(userId) {
      const row = read.get<{ left: number }>(
        `SELECT (SELECT count(*) FROM recovery_codes c WHERE c.user_id = f.user_id) AS left
         FROM second_factors f WHERE f.user_id = ? AND f.enabled_at IS NOT NULL`,
        userId,
      );
      return row && { recoveryCodesLeft: row.left };
    },

    async findPending(userId, now) {
      return read.get<{ id: string; sealed: Uint8Array }>(
        "SELECT id, sealed FROM second_factors WHERE user_id = ? AND expires_at > ?",
        userId,
        now,
      );
    },
  };
}

export function createOtpAttempts({ write }: SecondFactorDatabase): OtpAttempts {
  return {
    begin: write.beginOtpAttempt,
    acceptOtp: write.acceptOtp,
    acceptRecoveryCode: write.acceptRecoveryCode,
  };
}
