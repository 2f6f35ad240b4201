import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { OtpAttempt } from "../domain/otp-attempts.ts";
import type {
  ConfirmedSecondFactor,
  NewSecondFactor,
  OtpOrigin,
  SecondFactor,
  SecondFactorRemoval,
  UsedRecoveryCode,
} from "../domain/second-factors.ts";

/** Second factors: a user has one at most, which is pending until it is confirmed, and enabled then. */
export interface SecondFactors {
  /** Undefined unless one is enabled. */
  find(userId: string): Promise<{ recoveryCodesLeft: number } | undefined>;
  /** Undefined when there is none, or it has expired. */
  findPending(userId: string, now: Date): Promise<SecondFactor | undefined>;
  /** Adds a pending one in place of another; false, and nothing happens, when one is enabled. */
  add(factor: NewSecondFactor): Promise<boolean>;
  /** Enables this one; false, and nothing happens, when it isn't pending any more. */
  enable(confirmed: ConfirmedSecondFactor, now: Date): Promise<boolean>;
  /** False, and nothing happens, when none is enabled. */
  replaceRecoveryCodes(
    userId: string,
    codeHashes: readonly Uint8Array[],
    events: readonly StagedEvent[],
  ): Promise<boolean>;
  /**
   * Removes the enabled one. The user's sessions count as signed in without one from now on, or with `endSessions` end;
   * returns the ids of those that it ended. Undefined, and nothing happens, when none is enabled.
   */
  remove(userId: string, removal: SecondFactorRemoval, now: Date): Promise<string[] | undefined>;
}

/** Codes that are tried at an enabled second factor. */
export interface OtpAttempts {
  /**
   * Counts an attempt before its code is looked at, so that attempts at once are as many as those one after another
   * (`decideOtpAttempt`).
   */
  begin(userId: string, origin: OtpOrigin, now: Date): Promise<OtpAttempt>;
  /**
   * Uses up a time step with all before it, and forgets the attempts from there; false, and nothing happens, when it
   * was used up before.
   */
  acceptOtp(factorId: string, step: number, origin: OtpOrigin): Promise<boolean>;
  /**
   * Uses up a recovery code, and forgets the attempts from there; false, and nothing happens, for an unknown or used
   * one.
   */
  acceptRecoveryCode(used: UsedRecoveryCode, now: Date): Promise<boolean>;
}
