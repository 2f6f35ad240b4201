import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { NewMail } from "./store.ts";

/** A browser that has been sent to a provider. */
export interface SsoAttempt {
  /** Of the state that the provider sends back. */
  stateHash: Uint8Array;
  /** Of the secret that the browser's cookie holds. */
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
  /** The user that is created when there is none of the name; undefined: none is. */
  created: { id: string; events: readonly StagedEvent[] } | undefined;
  /** The user who has the name, as far as is known before. */
  holder: { id: string; events: readonly StagedEvent[]; noticeMail: NewMail } | undefined;
}

export type ResolvedUser =
  | { userId: string; endedSessionIds: string[] }
  /** No user is linked, and the provider hasn't verified an address by which to find one. */
  | "email_not_verified"
  /** There is no user of that name, and none may be created. */
  | "unknown"
  /** The holder of the name is another than was known before. */
  | "changed";

/** What single sign-on keeps. */
export interface SsoStore {
  addSsoAttempt(attempt: SsoAttempt): Promise<void>;
  /** Removes the attempt, so that it can be taken once. Undefined for an unknown, taken or expired one, or one of another browser. */
  takeSsoAttempt(
    attempt: Pick<SsoAttempt, "stateHash" | "browserHash" | "provider">,
    now: Date,
  ): Promise<{ redirectUri: string } | undefined>;
  /**
   * The user that is linked to the identity. Without one, the user of its name is linked: one who was never verified is
   * verified now and loses the password, all links and sessions, whose ids are returned; and without such a user, the new one
   * is created.
   */
  resolveExternalUser(identity: ExternalIdentity, first: FirstSignIn, now: Date): Promise<ResolvedUser>;
}
