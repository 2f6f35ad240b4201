import type { Cursor } from "@sandgate/kit/base/page";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { ServiceStore } from "@sandgate/kit/storage/open-store";
import type { ApiToken } from "../domain/api-tokens.ts";
import type { User } from "../domain/users.ts";

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

export interface Registration {
  id: string;
  username: string;
  usernameKey: string;
  passwordHash: string;
  createdAt: Date;
  verification: NewVerification;
  /** Sent in place of the verification to a verified user who has the name already. */
  noticeMail: NewMail;
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

export interface NewSession {
  id: string;
  userId: string;
  createdAt: Date;
  expiresAt: Date;
  refreshTokenHash: Uint8Array;
  refreshTokenExpiresAt: Date;
}

export type Refreshed =
  | { outcome: "refreshed"; sessionId: string; userId: string; operator: boolean; refreshTokenExpiresAt: Date }
  | { outcome: "bad" }
  /** The token was used before: its session is ended now. */
  | { outcome: "reused"; sessionId: string };

export interface NewApiToken extends Omit<ApiToken, "lastUsedAt"> {
  tokenHash: Uint8Array;
}

export interface StoredKey {
  /** The `kid` of session tokens. */
  id: string;
  /** `session` keys sign access tokens; the `refresh` key derives the successors of refresh tokens. */
  use: "session" | "refresh";
  /** A public JWK as JSON; empty for a symmetric key. */
  publicJwk: string;
  sealed: Uint8Array;
  createdAt: Date;
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

/** How long a window of requests is. */
export const requestWindowMs = 60_000;

/** What identity keeps. Every method that changes something is one transaction. Secrets come hashed or sealed. */
export interface IdentityStore extends ServiceStore {
  /**
   * Creates an unverified user. A name that is taken but unverified gets the new password and another verification; one
   * that is verified gets the notice. Neither when the account has used up its mails of the hour.
   */
  registerUser(registration: Registration): Promise<"created" | "renewed" | "taken">;
  /** Adds a verification for an unverified user of that name; false, and nothing happens, for any other. */
  renewVerification(usernameKey: string, verification: NewVerification, now: Date): Promise<boolean>;
  /**
   * Verifies the user and sets the password that was registered with this very link, so that nobody who registered the
   * name before its owner gets in. False for an unknown, used or expired token.
   */
  verifyEmail(tokenHash: Uint8Array, now: Date): Promise<boolean>;
  /** Creates a verified operator unless there is one, also when several replicas try at once. */
  createFirstOperator(operator: FirstOperator): Promise<boolean>;
  /** Whether there is any operator. */
  hasOperator(): Promise<boolean>;
  /** A user without a password can't sign in with one. */
  findSignIn(usernameKey: string): Promise<{ user: User; passwordHash: string | undefined } | undefined>;
  /** Users of these ids or these names, each once; what is not found is left out. */
  findUsers(ids: readonly string[], usernameKeys: readonly string[]): Promise<User[]>;

  createSession(session: NewSession): Promise<void>;
  /** The session that a refresh token belongs to, whether or not the token is valid. */
  findSessionOf(refreshTokenHash: Uint8Array): Promise<string | undefined>;
  /** Replaces a valid refresh token with its successor, or with the same successor again for a retry (`judgeRefresh`). */
  rotateRefreshToken(presentedHash: Uint8Array, successorHash: Uint8Array, now: Date): Promise<Refreshed>;
  /** Ends the token's session and answers its id; undefined for an unknown token or a session that had ended. */
  endSessionOf(refreshTokenHash: Uint8Array, now: Date): Promise<string | undefined>;
  /** Ids of sessions that ended after this time. */
  listSessionsEndedSince(since: Date): Promise<string[]>;

  /** @param maxTokens how many the user may have, those that have expired and are still listed included; 0: no limit */
  createApiToken(
    token: NewApiToken,
    maxTokens: number,
    record: IdempotencyRecord | undefined,
  ): Promise<"done" | "too_many">;
  /** Undefined for an unknown or revoked token; one that has expired is found. */
  findApiToken(tokenHash: Uint8Array): Promise<(ApiToken & { operator: boolean }) | undefined>;
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

  /** Deletes up to `limit` rows of each kind that have been kept long enough, and answers how many; none where the database does that. */
  sweep(now: Date, limit: number): Promise<number>;
}
