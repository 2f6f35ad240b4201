import type { Cursor } from "@sandgate/kit/base/page";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { ServiceStore } from "@sandgate/kit/storage/open-store";
import type { ApiToken } from "../domain/api-tokens.ts";
import type { StoredKey } from "../domain/signing-keys.ts";
import type { User } from "../domain/users.ts";
import type { LimitStore } from "./limits.ts";
import type { SecondFactorStore } from "./second-factor.ts";
import type { SsoStore } from "./sso.ts";

export type { LimitStore } from "./limits.ts";
export type { SecondFactor } from "./second-factor.ts";
export type { ExternalIdentity, ResolvedUser } from "./sso.ts";

/** A mail that is committed with what it is about. `sealed` holds the recipient and the text, which may contain a secret. */
export interface NewMail {
  id: string;
  sealed: Uint8Array;
}

export interface NewVerification {
  tokenHash: Uint8Array;
  expiresAt: Date;
  /** Sent to the user with the verification. */
  mail: NewMail;
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
  /** Tells the user about it. */
  noticeMail: NewMail;
  events: readonly StagedEvent[];
}

export interface Registration {
  id: string;
  username: string;
  usernameKey: string;
  passwordHash: string;
  createdAt: Date;
  /** None when the address or the platform has had too many mails: a new user has no link then, and others get no mail. */
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

export interface FirstOperator {
  id: string;
  username: string;
  usernameKey: string;
  passwordHash: string;
  createdAt: Date;
  events: readonly StagedEvent[];
}

/** Where a request came from. */
export interface ClientInfo {
  address: string;
  userAgent: string;
}

/** A live session as its user sees it. */
export interface Session {
  id: string;
  createdAt: Date;
  /** Its sign-in or last refresh. */
  lastSeenAt: Date;
  /** The client then. */
  client: ClientInfo;
}

export interface NewSession {
  id: string;
  client: ClientInfo;
  userId: string;
  /** Whether it is signed in with a second factor; not unless set. */
  secondFactor?: boolean;
  /** The hash that the sign-in's password was compared with; undefined for a sign-in without one, by a provider. */
  passwordHash: string | undefined;
  createdAt: Date;
  expiresAt: Date;
  refreshTokenHash: Uint8Array;
  refreshTokenExpiresAt: Date;
  events: readonly StagedEvent[];
}

export interface SignIn {
  user: User;
  passwordHash: string | undefined;
}

export type Refreshed =
  | {
      outcome: "refreshed";
      sessionId: string;
      userId: string;
      operator: boolean;
      /** Whether the session was signed in with a second factor that the user still has. */
      secondFactor: boolean;
      refreshTokenExpiresAt: Date;
    }
  | { outcome: "bad" }
  /** The token was used before: its session is ended now. */
  | { outcome: "reused"; sessionId: string };

export interface NewApiToken extends Omit<ApiToken, "lastUsedAt"> {
  tokenHash: Uint8Array;
}

export interface DueMail extends NewMail {
  /** How often it was tried before. */
  attempts: number;
}

export interface RequestDraw {
  key: Uint8Array;
  /** Requests in a window. */
  limit: number;
  wanted: number;
}

export interface DrawnRequests {
  granted: number;
  /** Left in the window after this. */
  remaining: number;
  endsAt: Date;
}

/** What a facade holds of a limit on what may be open at once. */
export interface SlotHold {
  /** A SHA-256 hash of what is limited. */
  key: Uint8Array;
  /** Slots there are for all facades. */
  limit: number;
  /** In use, and so held whatever the limit. */
  used: number;
  /** Wanted in all; 0 gives everything back. */
  wanted: number;
}

/** How long a facade holds slots after it last said so. */
export const slotLeaseMs = 30_000;

/** How long a window of requests is. */
export const requestWindowMs = 60_000;

/**
 * What identity keeps. Every method that changes something is one transaction, which stores its events too, unless nothing
 * happens. Secrets come hashed or sealed.
 */
export interface IdentityStore extends ServiceStore, SsoStore, LimitStore, SecondFactorStore {
  /**
   * Creates an unverified user. A name that is taken but unverified gets another verification with the password of this
   * registration, and keeps its own; one that is verified gets the notice.
   */
  registerUser(registration: Registration): Promise<"created" | "renewed" | "taken">;
  /** Adds a verification without a password for an unverified user; false, and nothing happens, for any other. */
  renewVerification(userId: string, verification: NewVerification, now: Date): Promise<boolean>;
  /** Whose link this is, and whether it was registered with a password. Undefined for an unknown, used or expired token. */
  findVerification(
    tokenHash: Uint8Array,
    now: Date,
  ): Promise<{ userId: string; username: string; hasPassword: boolean } | undefined>;
  /**
   * Verifies the user, sets the password (the one registered with this very link unless another is given, so that nobody who
   * registered the name before its owner gets in) and ends the user's other links and all sessions, whose ids it returns.
   * Undefined, and nothing happens, for an unknown, used or expired token, and without any password.
   */
  verifyEmail(
    tokenHash: Uint8Array,
    passwordHash: string | undefined,
    now: Date,
    events: readonly StagedEvent[],
  ): Promise<string[] | undefined>;
  /** Adds a link for a verified user; false, and nothing happens, for any other. */
  addPasswordReset(userId: string, reset: NewPasswordReset, now: Date): Promise<boolean>;
  /** Whose link this is. Undefined for an unknown, used or expired token. */
  findPasswordReset(tokenHash: Uint8Array, now: Date): Promise<{ userId: string; username: string } | undefined>;
  /**
   * Sets the password and ends the user's other links and all sessions, whose ids it returns. Undefined, and nothing happens,
   * for an unknown, used or expired token.
   */
  resetPassword(tokenHash: Uint8Array, change: PasswordChange, now: Date): Promise<string[] | undefined>;
  /**
   * Replaces the user's password, if it still has that hash, and ends the user's links and all sessions but one. Returns the
   * ids of the ended ones; undefined when another change came first.
   */
  changePassword(
    user: { id: string; currentHash: string; sessionId: string },
    change: PasswordChange,
    now: Date,
  ): Promise<string[] | undefined>;
  /** Creates a verified operator unless there is one, also when several replicas try at once. */
  createFirstOperator(operator: FirstOperator): Promise<boolean>;
  /** Whether there is any operator. */
  hasOperator(): Promise<boolean>;
  /** A user without a password can't sign in with one. */
  findSignIn(who: { usernameKey: string } | { id: string }): Promise<SignIn | undefined>;
  /** Up to `limit` users after `before`, newest first; with a name that user alone. */
  listUsers(usernameKey: string | undefined, limit: number, before: Cursor | undefined): Promise<User[]>;
  /** Disables the user and ends all sessions, whose ids it returns, or enables the user. Undefined: no such user. */
  setUserDisabled(
    userId: string,
    disabled: boolean,
    now: Date,
    events: readonly StagedEvent[],
  ): Promise<{ user: User; endedSessionIds: string[] } | undefined>;
  /**
   * Deletes the user with all tokens and links, and ends all sessions, whose ids it returns. Undefined: no such user. The last
   * operator stays: without one the next start would create another.
   */
  deleteUser(
    userId: string,
    events: readonly StagedEvent[],
    now: Date,
  ): Promise<string[] | "last_operator" | undefined>;
  /** Up to `limit` users who registered before that time, never verified their address and have no link that works. */
  listUnverified(registeredBefore: Date, now: Date, limit: number): Promise<string[]>;
  /** Deletes a user who is still unverified and has no link that works; false for any other. */
  deleteUnverified(userId: string, events: readonly StagedEvent[], now: Date): Promise<boolean>;
  /** Users of these ids or these names, each once; what is not found is left out. */
  findUsers(ids: readonly string[], usernameKeys: readonly string[]): Promise<User[]>;

  /** False, and nothing happens, when a password was compared and has changed since, or the user is disabled or gone. */
  createSession(session: NewSession): Promise<boolean>;
  /** The session that a refresh token belongs to, whether or not the token is valid. */
  findSessionOf(refreshTokenHash: Uint8Array): Promise<{ sessionId: string; userId: string } | undefined>;
  /** Replaces a valid refresh token with its successor, or with the same successor again for a retry (`judgeRefresh`). */
  rotateRefreshToken(
    presentedHash: Uint8Array,
    successorHash: Uint8Array,
    client: ClientInfo,
    now: Date,
    eventsOfReuse?: readonly StagedEvent[],
  ): Promise<Refreshed>;
  /** Ends the token's session and returns its id; undefined for an unknown token or a session that had ended. */
  endSessionOf(refreshTokenHash: Uint8Array, now: Date, events: readonly StagedEvent[]): Promise<string | undefined>;
  /** Up to `limit` live sessions of the user after `before`, newest first. */
  listSessions(userId: string, limit: number, before: Cursor | undefined, now: Date): Promise<Session[]>;
  /** False when the user has no such live session. */
  endSession(userId: string, sessionId: string, now: Date, events: readonly StagedEvent[]): Promise<boolean>;
  /** When a live session of the user was signed in. */
  findSessionStart(userId: string, sessionId: string): Promise<Date | undefined>;
  /** Ends the user's sessions but one, or all, and returns the ids of those that it ended. */
  endOtherSessions(
    userId: string,
    keptSessionId: string | undefined,
    now: Date,
    events: readonly StagedEvent[],
  ): Promise<string[]>;
  /** Ids of sessions that ended after this time. */
  listSessionsEndedSince(since: Date): Promise<string[]>;

  /** @param maxTokens how many the user may have, those that have expired and are still listed included; 0: no limit */
  createApiToken(
    token: NewApiToken,
    maxTokens: number,
    record: IdempotencyRecord | undefined,
    events: readonly StagedEvent[],
  ): Promise<"done" | "too_many">;
  /**
   * With whether its user is an operator, and has a second factor. Undefined for an unknown or revoked token and for a disabled
   * user's; one that has expired is found.
   */
  findApiToken(tokenHash: Uint8Array): Promise<(ApiToken & { operator: boolean; secondFactor: boolean }) | undefined>;
  /** Up to `limit` tokens of the user after `before`, newest first. */
  listApiTokens(userId: string, limit: number, before: Cursor | undefined): Promise<ApiToken[]>;
  /** False when the user has no such token. */
  revokeApiToken(
    userId: string,
    tokenId: string,
    events: readonly StagedEvent[],
    record: IdempotencyRecord | undefined,
  ): Promise<boolean>;
  /** Stores when tokens were last used; a stored later time stays. */
  noteApiTokenUses(uses: readonly { id: string; usedAt: Date }[]): Promise<void>;

  /** Adds a key unless one of its use was created after `unlessAfter`; false then. */
  addKey(key: StoredKey, unlessAfter: Date): Promise<boolean>;
  /** Newest first. */
  listKeys(): Promise<StoredKey[]>;
  /** Replaces all keys with these and ends every session, as of `endedAt`. */
  replaceKeys(keys: readonly StoredKey[], endedAt: Date): Promise<void>;
  /** Ids that are unknown are ignored. */
  removeKeys(ids: readonly string[]): Promise<void>;

  /** Takes up to `limit` due mails, oldest first, for the time until `leasedUntil`; nobody else gets them before. */
  takeDueMails(now: Date, leasedUntil: Date, limit: number): Promise<DueMail[]>;
  /** Deletes the content of a mail that was sent. */
  finishMail(id: string): Promise<void>;
  /** Makes a mail due again at `until`, after a failed attempt to send it. */
  postponeMail(id: string, until: Date): Promise<void>;

  /** Draws up to `wanted` requests of the key's window, which begins with its first and is a minute long. */
  drawRequests(draw: RequestDraw, now: Date): Promise<DrawnRequests>;
  /**
   * Sets what `holder` holds of each key, for `slotLeaseMs`: as many slots as it wants and the others leave. No key twice.
   * Answers how many for each.
   */
  holdSlots(holder: string, holds: readonly SlotHold[], now: Date): Promise<number[]>;

  /** Deletes up to `limit` rows of each kind that have been kept long enough, and returns how many; none where the database does that. */
  sweep(now: Date, limit: number): Promise<number>;
}
