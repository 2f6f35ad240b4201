import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { NewMail } from "./mails.ts";
import type { NewUser, User } from "./users.ts";

/**
 * An account that was never verified is deleted this long after its registration, or when its last link has expired.
 */
export const unverifiedDays = 7;

/** How long the link in a verification mail works. */
export const verificationSeconds = 24 * 3600;

/** A link that verifies the address, and the mail that carries it. */
export interface NewVerification {
  tokenHash: Uint8Array;
  expiresAt: Date;
  mail: NewMail;
}

export interface Registration {
  id: string;
  username: string;
  usernameKey: string;
  /** What a sign-in is compared with before the address is verified. The followed link sets the account's password. */
  passwordHash: string;
  createdAt: Date;
  /**
   * Undefined when the address or the platform has had too many mails. A new user has no link then, and others get no
   * mail.
   */
  mails:
    | {
        verification: NewVerification;
        /** Sent in place of the verification to a verified user who has the name already. */
        notice: NewMail;
      }
    | undefined;
  /** Published when the user is created. */
  events: readonly StagedEvent[];
}

/** What a registration changes. */
interface RegistrationChange {
  outcome: "created" | "renewed" | "taken";
  /** The user who has the name from now on, or had it before. */
  userId: string;
  created?: NewUser;
  verification?: NewVerification | undefined;
  notice?: NewMail | undefined;
  events: readonly StagedEvent[];
}

/**
 * Decides by who has the name: nobody, so that a user is created; a user who isn't verified, who gets another link; or
 * a verified user, who gets a notice.
 */
export function decideRegistration(
  holder: Pick<User, "id" | "verified"> | undefined,
  registration: Registration,
): RegistrationChange {
  const { mails, events, ...user } = registration;
  if (!holder) {
    const created = { ...user, verifiedAt: undefined, operator: false };
    return { outcome: "created", userId: user.id, created, verification: mails?.verification, events };
  }
  const { id: userId, verified } = holder;
  return verified
    ? { outcome: "taken", userId, notice: mails?.notice, events: [] }
    : { outcome: "renewed", userId, verification: mails?.verification, events: [] };
}

/** Whether nobody can verify the account any more. */
export function isAbandoned(user: Pick<User, "verified">, hasWorkingLink: boolean): boolean {
  return !user.verified && !hasWorkingLink;
}
