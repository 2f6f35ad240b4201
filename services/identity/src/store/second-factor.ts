import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { NewMail } from "./store.ts";

/** What codes are made from. */
export interface SecondFactor {
  id: string;
  sealed: Uint8Array;
}

export interface NewSecondFactor extends SecondFactor {
  userId: string;
  /** Until when it can be confirmed. */
  expiresAt: Date;
}

export interface ConfirmedSecondFactor {
  id: string;
  userId: string;
  /** The time step of the code that it was confirmed with, which is used up by that. */
  step: number;
  recoveryCodeHashes: readonly Uint8Array[];
  /** Tells the user. */
  noticeMail: NewMail;
  events: readonly StagedEvent[];
}

export interface UsedRecoveryCode {
  userId: string;
  factorId: string;
  codeHash: Uint8Array;
  noticeMail: NewMail;
  events: readonly StagedEvent[];
}

export type OtpAttempt =
  /** The user has no second factor that is enabled. */
  | { outcome: "none" }
  /** Too many attempts without a right code; not counted. */
  | { outcome: "refused"; until: Date }
  /** Counted as wrong until a code is accepted. */
  | { outcome: "counted"; factor: SecondFactor };

/** Second factors: a user has one at most, which is pending until it is confirmed, and enabled then. */
export interface SecondFactorStore {
  /** Undefined unless one is enabled. */
  findSecondFactor(userId: string): Promise<{ recoveryCodesLeft: number } | undefined>;
  /** Adds a pending one in place of another; false, and nothing happens, when one is enabled. */
  addSecondFactor(factor: NewSecondFactor): Promise<boolean>;
  /** Undefined for none, or one that has expired. */
  findPendingSecondFactor(userId: string, now: Date): Promise<SecondFactor | undefined>;
  /** Enables this one; false, and nothing happens, when it isn't pending any more. */
  enableSecondFactor(confirmed: ConfirmedSecondFactor, now: Date): Promise<boolean>;
  /**
   * Counts an attempt before its code is looked at, so that attempts at once are as many as those one after another
   * (`refusedUntil`).
   */
  beginOtpAttempt(userId: string, now: Date): Promise<OtpAttempt>;
  /** Uses up a time step with all before it, and forgets the attempts; false, and nothing happens, when it was used up before. */
  acceptOtp(factorId: string, step: number): Promise<boolean>;
  /** Uses up a recovery code, and forgets the attempts; false, and nothing happens, for an unknown or used one. */
  useRecoveryCode(used: UsedRecoveryCode, now: Date): Promise<boolean>;
  /** False, and nothing happens, when none is enabled. */
  replaceRecoveryCodes(
    userId: string,
    codeHashes: readonly Uint8Array[],
    events: readonly StagedEvent[],
  ): Promise<boolean>;
  /**
   * Removes the enabled one. The user's sessions count as signed in without one from now on, or with `endSessions` end; returns
   * the ids of those that it ended. Undefined, and nothing happens, when none is enabled.
   */
  removeSecondFactor(
    userId: string,
    o: { noticeMail: NewMail; endSessions: boolean; events: readonly StagedEvent[] },
    now: Date,
  ): Promise<string[] | undefined>;
}
