import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { NewMail } from "./mails.ts";

/** What codes are made from. */
export interface SecondFactor {
  id: string;
  sealed: Uint8Array;
}

export interface NewSecondFactor extends SecondFactor {
  userId: string;
  /** The time until which it can be confirmed. */
  expiresAt: Date;
}

export interface ConfirmedSecondFactor {
  id: string;
  userId: string;
  /** The time step of the code that it was confirmed with, which is used up by that. */
  step: number;
  recoveryCodeHashes: readonly Uint8Array[];
  /** Notifies the user. */
  noticeMail: NewMail;
  events: readonly StagedEvent[];
}

/** What goes with the removal of a second factor. */
export interface SecondFactorRemoval {
  noticeMail: NewMail;
  endSessions: boolean;
  events: readonly StagedEvent[];
}

/** Where a code is tried from. Networks that the account has used count apart from all others. */
export interface OtpOrigin {
  fromOwnNetwork: boolean;
}

export interface UsedRecoveryCode extends OtpOrigin {
  userId: string;
  factorId: string;
  codeHash: Uint8Array;
  noticeMail: NewMail;
  events: readonly StagedEvent[];
}
