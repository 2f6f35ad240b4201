import { toOptionalDate } from "@sandgate/kit/base/time";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { decideOtpAttempt, type OtpAttempt } from "../domain/otp-attempts.ts";
import type {
  ConfirmedSecondFactor,
  NewSecondFactor,
  SecondFactorRemoval,
  UsedRecoveryCode,
} from "../domain/second-factors.ts";
import { addMail } from "./mails.sqlite.transactions.ts";
import { endSessionsOf } from "./sessions.sqlite.transactions.ts";

function hasEnabled(tx: Transaction, userId: string): boolean {
  return tx.db.get("SELECT 1 FROM second_factors WHERE user_id = ? AND enabled_at IS NOT NULL", userId) !== undefined;
}

function setRecoveryCodes(tx: Transaction, userId: string, codeHashes: readonly Uint8Array[]): void {
  tx.db.run("DELETE FROM recovery_codes WHERE user_id = ?", userId);
  for (const codeHash of codeHashes) {
    tx.db.run("INSERT INTO recovery_codes (user_id, code_hash) VALUES (?, ?)", userId, codeHash);
  }
}

function addSecondFactor(tx: Transaction, { id, userId, sealed, expiresAt }: NewSecondFactor): boolean {
  if (hasEnabled(tx, userId)) return false;
  tx.db.run("DELETE FROM second_factors WHERE user_id = ?", userId);
  tx.db.run(
    "INSERT INTO second_factors (id, user_id, sealed, expires_at) VALUES (?, ?, ?, ?)",
    id,
    userId,
    sealed,
    expiresAt,
  );
  return true;
}

function enableSecondFactor(tx: Transaction, confirmed: ConfirmedSecondFactor, now: Date): boolean {
  const { id, userId, step, recoveryCodeHashes, noticeMail, events } = confirmed;
  const enabled = tx.db.run(
    `UPDATE second_factors SET enabled_at = ?, expires_at = NULL, last_step = ?
     WHERE id = ? AND user_id = ? AND expires_at > ?`,
    now,
    step,
    id,
    userId,
    now,
  );
  if (enabled === 0) return false;
  setRecoveryCodes(tx, userId, recoveryCodeHashes);
  addMail(tx, userId, noticeMail, now);
  tx.publish(events);
  return true;
}

function beginOtpAttempt(tx: Transaction, userId: string, now: Date): OtpAttempt {
  const row = tx.db.get<{ id: string; sealed: Uint8Array; attempts: number; refused_until: number | null }>(
    "SELECT id, sealed, attempts, refused_until FROM second_factors WHERE user_id = ? AND enabled_at IS NOT NULL",
    userId,
  );
  const enabled = row && {
    factor: { id: row.id, sealed: row.sealed },
    attempts: row.attempts,
    refusedUntil: toOptionalDate(row.refused_until),
  };
  const { attempt, change } = decideOtpAttempt(enabled, now);
  if (change) {
    tx.db.run(
      "UPDATE second_factors SET attempts = ?, refused_until = ? WHERE user_id = ?",
      change.attempts,
      change.refusedUntil,
      userId,
    );
  }
  return attempt;
}

function acceptOtp(tx: Transaction, factorId: string, step: number): boolean {
  const accepted = tx.db.run(
    `UPDATE second_factors SET last_step = ?, attempts = 0, refused_until = NULL
     WHERE id = ? AND enabled_at IS NOT NULL AND last_step < ?`,
    step,
    factorId,
    step,
  );
  return accepted > 0;
}

function acceptRecoveryCode(
  tx: Transaction,
  { userId, factorId, codeHash, noticeMail, events }: UsedRecoveryCode,
  now: Date,
): boolean {
  const used = tx.db.run(
    `DELETE FROM recovery_codes WHERE user_id = ? AND code_hash = ?
       AND EXISTS (SELECT 1 FROM second_factors f WHERE f.id = ? AND f.user_id = recovery_codes.user_id)`,
    userId,
    codeHash,
    factorId,
  );
  if (used === 0) return false;
  tx.db.run("UPDATE second_factors SET attempts = 0, refused_until = NULL WHERE id = ?", factorId);
  addMail(tx, userId, noticeMail, now);
  tx.publish(events);
  return true;
}

function replaceRecoveryCodes(
  tx: Transaction,
  userId: string,
  codeHashes: readonly Uint8Array[],
  events: readonly StagedEvent[],
): boolean {
  if (!hasEnabled(tx, userId)) return false;
  setRecoveryCodes(tx, userId, codeHashes);
  tx.publish(events);
  return true;
}

function removeSecondFactor(
  tx: Transaction,
  userId: string,
  { noticeMail, endSessions, events }: SecondFactorRemoval,
  now: Date,
): string[] | undefined {
  const removed = tx.db.run("DELETE FROM second_factors WHERE user_id = ? AND enabled_at IS NOT NULL", userId);
  if (removed === 0) return undefined;
  setRecoveryCodes(tx, userId, []);
  tx.db.run("UPDATE sessions SET second_factor = 0 WHERE user_id = ?", userId);
  addMail(tx, userId, noticeMail, now);
  tx.publish(events);
  return endSessions ? endSessionsOf(tx, userId, now) : [];
}

export const secondFactorTransactions = {
  addSecondFactor,
  enableSecondFactor,
  beginOtpAttempt,
  acceptOtp,
  acceptRecoveryCode,
  replaceRecoveryCodes,
  removeSecondFactor,
} satisfies Transactions;
