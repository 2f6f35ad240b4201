import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { refusedUntil } from "../domain/otp-attempts.ts";
import { addMail } from "./mails.sqlite.ts";
import { endOtherSessions } from "./passwords.sqlite.ts";
import type { ConfirmedSecondFactor, NewSecondFactor, OtpAttempt, UsedRecoveryCode } from "./second-factor.ts";
import type { NewMail } from "./store.ts";

function addSecondFactor(tx: Transaction, { id, userId, sealed, expiresAt }: NewSecondFactor): boolean {
  if (tx.db.get("SELECT 1 FROM second_factors WHERE user_id = ? AND enabled_at IS NOT NULL", userId)) return false;
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
  addRecoveryCodes(tx, userId, recoveryCodeHashes);
  addMail(tx, userId, noticeMail, now);
  tx.publish(events);
  return true;
}

function beginOtpAttempt(tx: Transaction, userId: string, now: Date): OtpAttempt {
  const factor = tx.db.get<{ id: string; sealed: Uint8Array; attempts: number; refused_until: number | null }>(
    "SELECT id, sealed, attempts, refused_until FROM second_factors WHERE user_id = ? AND enabled_at IS NOT NULL",
    userId,
  );
  if (!factor) return { outcome: "none" };
  const { id, sealed, refused_until } = factor;
  if (refused_until !== null && refused_until > now.getTime()) {
    return { outcome: "refused", until: new Date(refused_until) };
  }
  const attempts = factor.attempts + 1;
  tx.db.run(
    "UPDATE second_factors SET attempts = ?, refused_until = ? WHERE id = ?",
    attempts,
    refusedUntil(attempts, now),
    id,
  );
  return { outcome: "counted", factor: { id, sealed } };
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

function useRecoveryCode(
  tx: Transaction,
  { userId, factorId, codeHash, noticeMail, events }: UsedRecoveryCode,
  now: Date,
): boolean {
  const factor = tx.db.get("SELECT 1 FROM second_factors WHERE id = ? AND user_id = ?", factorId, userId);
  if (!factor) return false;
  const used = tx.db.run("DELETE FROM recovery_codes WHERE user_id = ? AND code_hash = ?", userId, codeHash);
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
  if (!tx.db.get("SELECT 1 FROM second_factors WHERE user_id = ? AND enabled_at IS NOT NULL", userId)) return false;
  addRecoveryCodes(tx, userId, codeHashes);
  tx.publish(events);
  return true;
}

function removeSecondFactor(
  tx: Transaction,
  userId: string,
  { noticeMail, endSessions, events }: { noticeMail: NewMail; endSessions: boolean; events: readonly StagedEvent[] },
  now: Date,
): string[] | undefined {
  const removed = tx.db.run("DELETE FROM second_factors WHERE user_id = ? AND enabled_at IS NOT NULL", userId);
  if (removed === 0) return undefined;
  tx.db.run("DELETE FROM recovery_codes WHERE user_id = ?", userId);
  tx.db.run("UPDATE sessions SET second_factor = 0 WHERE user_id = ?", userId);
  addMail(tx, userId, noticeMail, now);
  tx.publish(events);
  return endSessions ? endOtherSessions(tx, userId, undefined, now) : [];
}

/** In place of those that are left. */
function addRecoveryCodes(tx: Transaction, userId: string, codeHashes: readonly Uint8Array[]): void {
  tx.db.run("DELETE FROM recovery_codes WHERE user_id = ?", userId);
  for (const codeHash of codeHashes) {
    tx.db.run("INSERT INTO recovery_codes (user_id, code_hash) VALUES (?, ?)", userId, codeHash);
  }
}

/** What the writer thread runs; `SecondFactorStore` says what each one means. */
export const secondFactorTransactions = {
  addSecondFactor,
  enableSecondFactor,
  beginOtpAttempt,
  acceptOtp,
  useRecoveryCode,
  replaceRecoveryCodes,
  removeSecondFactor,
} satisfies Transactions;
