/** A user as other services see one. Times are epoch milliseconds. */
export interface User {
  id: string;
  /** An e-mail address in the case it was registered with. */
  username: string;
  verified: boolean;
  /** May create global default images. */
  operator: boolean;
  createdAt: number;
}

export const VERIFICATION_SECONDS = 24 * 3600;

/** The operator's name on one machine when no other is set. It is no deliverable address and needs no verification. */
export const DEFAULT_OPERATOR_USERNAME = "admin@localhost";

/** How long a password may be, in characters; the same as the contract says of RegisterRequest. */
export const PASSWORD_LENGTH = { min: 10, max: 256 };

/** The form in which user names are compared and unique: case doesn't matter. */
export function usernameKey(username: string): string {
  return username.trim().normalize("NFC").toLowerCase();
}

/** How many mails one account may cause in an hour, so that nobody can flood a stranger's mailbox. */
export const MAILS_PER_HOUR = 5;
