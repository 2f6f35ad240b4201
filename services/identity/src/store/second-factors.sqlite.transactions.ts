import { toOptionalDate } from "@sandgate/kit/base/time";
import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { decideOtpAttempt } from "../domain/otp-attempts.ts";
import type { OtpOrigin } from "../domain/second-factors.ts";
import { addMail } from "./mails.sqlite.transactions.ts";
import type { OtpAttempts, SecondFactors } from "./second-factors.ts";
import { endSessionsOf } from "./sessions.sqlite.transactions.ts";
import { insert, type TransactionOf } from "./transaction.sqlite.ts";

export function hasSecondFactor(tx: Transaction, userId: string): boolean {
  return tx.db.get("SELECT 1 FROM second_factors WHERE user_id = ? AND enabled_at IS NOT NULL", userId) !== undefined;
}

function setRecoveryCodes(tx: Transaction, userId: string, codeHashes: readonly Uint8Array[]): void {
  tx.db.run("DELETE FROM recovery_codes WHERE user_id = ?", userId);
  for (const codeHash of codeHashes) insert(tx, "recovery_codes", { user_id: userId, code_hash: codeHash });
}

const addSecondFactor: TransactionOf<SecondFactors["add"]> = (tx, { id, userId, sealed, expiresAt }) => {
  if (hasSecondFactor(tx, userId)) return false;
  tx.db.run("DELETE FROM second_factors WHERE user_id = ?", userId);
  insert(tx, "second_factors", { id, user_id: userId, sealed, expires_at: expiresAt });
  return true;
};

const enableSecondFactor: TransactionOf<SecondFactors["enable"]> = (tx, confirmed, now) => {
  const { id, userId, step, recoveryCodeHashes, noticeMail, events } = confirmed;
  const enabled = tx.db.run(
    `UPDATE second_factors SET enabled_at = :now, expires_at = NULL, last_step = :step
     WHERE id = :id AND user_id = :userId AND expires_at > :now`,
    { id, userId, step, now },
  );
  if (enabled === 0) return false;
  setRecoveryCodes(tx, userId, recoveryCodeHashes);
  addMail(tx, userId, noticeMail, now);
  tx.publish(events);
  return true;
};

const replaceRecoveryCodes: TransactionOf<SecondFactors["replaceRecoveryCodes"]> = (tx, userId, codeHashes, events) => {
  if (!hasSecondFactor(tx, userId)) return false;
  setRecoveryCodes(tx, userId, codeHashes);
  tx.publish(events);
  return true;
};

const removeSecondFactor: TransactionOf<SecondFactors["remove"]> = (tx, userId, removal, now) => {
  const removed = tx.db.run("DELETE FROM second_factors WHERE user_id = ? AND enabled_at IS NOT NULL", userId);
  if (removed === 0) return undefined;
  setRecoveryCodes(tx, userId, []);
  tx.db.run("UPDATE sessions SET second_factor = 0 WHERE user_id = ?", userId);
  addMail(tx, userId, removal.noticeMail, now);
  tx.publish(removal.events);
  return removal.endSessions ? endSessionsOf(tx, userId, now) : [];
};

/** The columns that count attempts from there. */
function countersOf({ fromOwnNetwork }: OtpOrigin) {
  return fromOwnNetwork
    ? { attempts: "attempts", until: "refused_until" }
    : { attempts: "attempts_elsewhere", until: "refused_elsewhere_until" };
}

const beginOtpAttempt: TransactionOf<OtpAttempts["begin"]> = (tx, userId, origin, now) => {
  const { attempts, until } = countersOf(origin);
  const row = tx.db.get<{ id: string; sealed: Uint8Array; attempts: number; refused_until: number | null }>(
    `SELECT id, sealed, ${attempts} AS attempts, ${until} AS refused_until FROM second_factors
     WHERE user_id = ? AND enabled_at IS NOT NULL`,
    userId,
  );
  const enabled = row && {
    factor: { id: row.id, sealed: row.sealed },
    attempts: row.attempts,
    refusedUntil: toOptionalDate(row.refused_until),
  };
  const { attempt, change } = decideOtpAttempt(enabled, now);
  if (change) {
    const sql = `UPDATE second_factors SET ${attempts} = :attempts, ${until} = :refusedUntil WHERE user_id = :userId`;
    tx.db.run(sql, { userId, ...change });
  }
  return attempt;
};

const acceptOtp: TransactionOf<OtpAttempts["acceptOtp"]> = (tx, factorId, step, origin) => {
  const { attempts, until } = countersOf(origin);
  const accepted = tx.db.run(
    `UPDATE second_factors SET last_step = :step, ${attempts} = 0, ${until} = NULL
     WHERE id = :factorId AND enabled_at IS NOT NULL AND last_step < :step`,
    { factorId, step },
  );
  return accepted > 0;
};

const acceptRecoveryCode: TransactionOf<OtpAttempts["acceptRecoveryCode"]> = (tx, accepted, now) => {
  const { userId, factorId, codeHash, noticeMail, events } = accepted;
  const used = tx.db.run(
    `DELETE FROM recovery_codes WHERE user_id = :userId AND code_hash = :codeHash
       AND EXISTS (SELECT 1 FROM second_factors WHERE id = :factorId AND user_id = :userId)`,
    { userId, factorId, codeHash },
  );
  if (used === 0) return false;
  const { attempts, until } = countersOf(accepted);
  tx.db.run(`UPDATE second_factors SET ${attempts} = 0, ${until} = NULL WHERE id = ?`, factorId);
  addMail(tx, userId, noticeMail, now);
  tx.publish(events);
  return true;
};

export const secondFactorTransactions = {
  addSecondFactor,
  enableSecondFactor,
  replaceRecoveryCodes,
  removeSecondFactor,
  beginOtpAttempt,
  acceptOtp,
  acceptRecoveryCode,
} satisfies Transactions;
