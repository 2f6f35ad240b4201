import { hash } from "node:crypto";
import { networksOf } from "@sandgate/kit/base/networks";
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
  /** The provider's name in the API. */
  provider: string;
  /** The address there, as a user name; undefined without one. */
  name: { username: string; usernameKey: string } | undefined;
  /** Whether the provider has verified that address. */
  verified: boolean;
}

/** A link to an account at a provider, as its user sees it. */
export interface LinkedIdentity {
  id: string;
  issuer: string;
  provider: string;
  /** The address that the provider verified last. */
  username: string;
  linkedAt: Date;
  lastUsedAt: Date | undefined;
}

/** The id of a link: a UUID made of what names the account at the provider (RFC 9562, 5.8), so that none is stored. */
export function identityId(issuer: string, subject: string): string {
  const hex = hash("sha256", `${issuer} ${subject}`);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

/** What a first sign-in by a provider may lead to. */
export interface FirstSignIn {
  /** The user that is created when nobody has the name; undefined when none may be. */
  created: { id: string; events: readonly StagedEvent[] } | undefined;
  /** The user who has the name, as far as is known before. */
  holder: { id: string; events: readonly StagedEvent[]; noticeMail: NewMail } | undefined;
  /** Where the browser is. */
  address: string;
}

type Unresolved =
  /** The provider hasn't verified the address, by which a user is to be found, or which has changed there. */
  | "email_not_verified"
  /** The account at the provider is linked to the user only after another sign-in of that user. */
  | "sign_in_needed"
  /** There is no user of that name, and none may be created. */
  | "unknown"
  /** The holder of the name is another than was known before. */
  | "changed";

export type ResolvedUser = { userId: string; endedSessionIds: string[] } | Unresolved;

/** What a sign-in by a provider is decided by. */
interface ExternalUserState {
  /** Whom the identity is linked to, and the address that the provider verified last. */
  link: { userId: string; usernameKey: string } | undefined;
  /** Who has the name of the identity. */
  holder: NameHolder | undefined;
}

interface NameHolder extends Pick<User, "id" | "verified"> {
  /** Where the user signed in recently; undefined when a link needs no such sign-in (`isLinkGuarded`). */
  signedInAt: readonly string[] | undefined;
}

/**
 * Whether the address alone doesn't link to a user: a sign-in by a provider asks for no second factor, and a link that
 * was removed must not come back by itself.
 */
export function isLinkGuarded(user: { secondFactor: boolean; hasRemovedLink: boolean }): boolean {
  return user.secondFactor || user.hasRemovedLink;
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
 * Decides which user an account at a provider signs in: the linked one, whoever has its address here, though not while
 * the provider hasn't verified an address that has changed. Without one, the user of its name is linked: one who was
 * never verified is verified now, and loses what somebody else may have set; and without such a user, the new one is
 * created.
 */
export function decideExternalUser(
  { link, holder }: ExternalUserState,
  { name, verified }: ExternalIdentity,
  first: FirstSignIn,
  now: Date,
): Unresolved | { userId: string; change?: ExternalUserChange } {
  if (link) {
    const hasChanged = name !== undefined && name.usernameKey !== link.usernameKey;
    return hasChanged && !verified ? "email_not_verified" : { userId: link.userId };
  }
  if (!name || !verified) return "email_not_verified";
  if (holder) {
    if (holder.id !== first.holder?.id) return "changed";
    // A stranger's browser is elsewhere when the user signs in.
    if (holder.signedInAt?.every((address) => !isSameNetwork(address, first.address))) return "sign_in_needed";
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

function isSameNetwork(one: string, other: string): boolean {
  return networksOf(one)[0].name === networksOf(other)[0].name;
}

/** Decides whether a user may remove a link: not the last way to sign in. */
export function decideUnlink(
  user: { hasPassword: boolean; identityIds: readonly string[] },
  id: string,
): "unlink" | "unknown" | "last" {
  if (!user.identityIds.includes(id)) return "unknown";
  return user.hasPassword || user.identityIds.length > 1 ? "unlink" : "last";
}
