/** A user as other services see one. */
export interface User {
  id: string;
  /** An e-mail address in the case it was registered with. */
  username: string;
  verified: boolean;
  /** May create global default images and manage users. */
  operator: boolean;
  /** An operator has closed the account: it can't sign in, and its tokens are refused. */
  disabled: boolean;
  createdAt: Date;
}

/** An account that was never verified is deleted this long after its registration, or when its last link has expired. */
export const unverifiedDays = 7;

/** How long the link in a verification mail works. */
export const verificationSeconds = 24 * 3600;

/** How long the link that sets a new password works. */
export const passwordResetSeconds = 3600;

/** The operator's name on one machine when no other is set. It is no deliverable address and needs no verification. */
export const defaultOperatorUsername = "admin@localhost";

/** How long a password may be, in characters; the same as the contract says of RegisterRequest. */
export const passwordLength = { min: 10, max: 256 };

export { usernameKey } from "@sandgate/kit/base/usernames";
