import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { NewMail } from "./mails.ts";

/** How long the link that sets a new password works. */
export const passwordResetSeconds = 3600;

/** A link that sets a password, and the mail that carries it. */
export interface NewPasswordReset {
  tokenHash: Uint8Array;
  expiresAt: Date;
  mail: NewMail;
}

/** A password that replaces another. */
export interface PasswordChange {
  passwordHash: string;
  /** Notifies the user. */
  noticeMail: NewMail;
  events: readonly StagedEvent[];
}
