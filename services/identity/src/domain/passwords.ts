import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { NewMail } from "./mails.ts";
import { usernameKey } from "./users.ts";

/** How long the link that sets a new password works. */
export const passwordResetSeconds = 3600;

/** Whether the password is the user's name or its part before the @, whatever the case. */
export function isOwnName(password: string, username: string): boolean {
  const name = usernameKey(username);
  return [name, name.slice(0, name.lastIndexOf("@"))].includes(usernameKey(password.normalize("NFKC")));
}

/** A link that sets a password, and the mail that carries it. */
export interface NewPasswordReset {
  tokenHash: Uint8Array;
  expiresAt: Date;
  mail: NewMail;
}

/** A password that replaces another. */
export interface PasswordChange {
  passwordHash: string;
  /** Whether all API tokens of the user are revoked too. */
  revokesApiTokens: boolean;
  /** Notifies the user. */
  noticeMail: NewMail;
  events: readonly StagedEvent[];
}
