import type { StagedEvent } from "@sandgate/kit/events/outbox";

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

/**
 * A user with the hash of the password. A user who signs in by a provider may have none, and can't sign in with one
 * then.
 */
export interface Account {
  user: User;
  passwordHash: string | undefined;
}

/** A user as a store adds one. */
export interface NewUser {
  id: string;
  username: string;
  usernameKey: string;
  passwordHash: string | undefined;
  verifiedAt: Date | undefined;
  operator: boolean;
  createdAt: Date;
}

/** The operator of a new installation. */
export interface FirstOperator {
  user: NewUser;
  events: readonly StagedEvent[];
}

/**
 * The last operator's account can't be deleted or disabled, since nobody would be left to enable another. `hasOther`:
 * whether there is another operator who isn't disabled.
 */
export function isLastOperator({ operator }: User, hasOther: boolean): boolean {
  return operator && !hasOther;
}

/** The operator's name on one machine when no other is set. It is no deliverable address and needs no verification. */
export const defaultOperatorUsername = "admin@localhost";

export { usernameKey } from "@sandgate/kit/base/usernames";
