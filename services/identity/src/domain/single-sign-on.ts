import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { NewMail } from "./mails.ts";
import type { NewUser, User } from "./users.ts";

/** A browser that has been sent to a provider. */
export interface SsoAttempt {
  /** The hash of the state that the provider sends back. */
  stateHash: Uint8Array;
  /** The hash of the secret in the browser's cookie. */
  browserHash: Uint8Array;
  provider: string;
  /** Where the browser goes in the end. */
  redirectUri: string;
  expiresAt: Date;
}

/** An account at a provider, which the issuer and the subject together name for good. */
export interface ExternalIdentity {
  issuer: string;
  subject: string;
  /** The address that the provider has verified, as a user name; undefined without one. */
  name: { username: string; usernameKey: string } | undefined;
}

/** What a first sign-in by a provider may lead to. */
export interface FirstSignIn {
  /** The user that is created when nobody has the name; undefined when none may be. */
  created: { id: string; events: readonly StagedEvent[] } | undefined;
  /** The user who has the name, as far as is known before. */
  holder: { id: string; events: readonly StagedEvent[]; noticeMail: NewMail } | undefined;
}

type Unresolved =
  /** No user is linked, and the provider hasn't verified an address by which to find one. */
  | "email_not_verified"
  /** There is no user of that name, and none may be created. */
  | "unknown"
  /** The holder of the name is another than was known before. */
  | "changed";

export type ResolvedUser = { userId: string; endedSessionIds: string[] } | Unresolved;

/** What a sign-in by a provider is decided by. */
interface ExternalUserState {
  linkedUserId: string | undefined;
  /** Who has the name of the identity. */
  holder: Pick<User, "id" | "verified"> | undefined;
}

/** A link to a user, and what else changes with it. */
export interface ExternalUserChange {
  userId: string;
  created?: NewUser;
  /** Whether the user is verified now, and loses the password, all links and sessions. */
  takesOver: boolean;
  noticeMail?: NewMail;
  events: readonly StagedEvent[];
}

/**
 * Decides which user an account at a provider signs in: the linked one. Without one, the user of its name is linked:
 * one who was never verified is verified now, and loses what somebody else may have set; and without such a user, the
 * new one is created.
 */
export function decideExternalUser(
  { linkedUserId, holder }: ExternalUserState,
  { name }: ExternalIdentity,
  first: FirstSignIn,
  now: Date,
): Unresolved | { userId: string; change?: ExternalUserChange } {
  if (linkedUserId !== undefined) return { userId: linkedUserId };
  if (!name) return "email_not_verified";
  if (holder) {
    if (holder.id !== first.holder?.id) return "changed";
    const { id: userId, noticeMail, events } = first.holder;
    return { userId, change: { userId, takesOver: !holder.verified, noticeMail, events } };
  }
  if (!first.created) return "unknown";
  const { id: userId, events } = first.created;
  const created = {
    ...name,
    id: userId,
    passwordHash: undefined,
    verifiedAt: now,
    operator: false,
    createdAt: now,
  };
  return { userId, change: { userId, created, takesOver: false, events } };
}
