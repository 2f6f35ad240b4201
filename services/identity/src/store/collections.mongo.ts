import { type Db, isDuplicateKey, type MongoTransaction } from "@sandgate/kit/storage/mongo";
import type { Permission, Role } from "@sandgate/proto/common/v1/access";
import type { StoredKey } from "../domain/signing-keys.ts";
import type { Expiring } from "./expiry.mongo.ts";

// Times are epoch milliseconds, but for the one at which MongoDB removes the document.

export interface UserDocument {
  _id: string;
  username: string;
  usernameKey: string;
  passwordHash?: string | undefined;
  verifiedAt?: number | undefined;
  operator: boolean;
  disabledAt?: number;
  version: number;
  createdAt: number;
  /** Grows with every link mailed to the user, so that adding one conflicts with a password that ends all links. */
  mails?: number;
  /** Grows with every sign-in, so that one conflicts with a change of the password. */
  signIns?: number;
  /**
   * Grows with every new API token of the user: transactions that add one conflict on it, so that their number is
   * right.
   */
  apiTokens?: number;
}

/** A mailed link, which verifies the address or sets a password. */
interface LinkDocument extends Expiring {
  _id: Uint8Array;
  userId: string;
  expiresAt: number;
}

export interface SessionDocument extends Expiring {
  _id: string;
  userId: string;
  createdAt: number;
  expiresAt: number;
  /** When its last refresh token expires. */
  idleAt: number;
  /** Grows with every refresh, so that a refresh conflicts with the end of the session. */
  refreshes?: number;
  /** Its sign-in or last refresh, and the client then. */
  seenAt: number;
  address: string;
  userAgent: string;
  /** Set when it was signed in with a second factor that the user still has. */
  secondFactor?: boolean;
  endedAt?: number;
}

interface RefreshTokenDocument extends Expiring {
  _id: Uint8Array;
  sessionId: string;
  expiresAt: number;
  usedAt?: number;
}

export interface ApiTokenDocument extends Expiring {
  _id: string;
  userId: string;
  tokenHash: Uint8Array;
  description: string;
  hint: string;
  workspaceId?: string | undefined;
  role: Role;
  permissions?: readonly Permission[] | undefined;
  /** Set when the session that made it was signed in with a second factor. */
  secondFactor?: boolean;
  expiresAt?: number | undefined;
  createdAt: number;
  lastUsedAt?: number;
}

interface KeyDocument extends Omit<StoredKey, "id" | "createdAt"> {
  _id: string;
  createdAt: number;
}

export interface MailDocument extends Expiring {
  _id: string;
  userId: string;
  /** Unset once it was sent. */
  sealed?: Uint8Array;
  attempts: number;
  createdAt: number;
  /** Unset once it was sent. */
  dueAt?: number;
}

interface SecondFactorDocument extends Expiring {
  _id: string;
  userId: string;
  sealed: Uint8Array;
  /** The time until which it is pending. */
  expiresAt?: number;
  /** The time since which it is enabled. */
  enabledAt?: number;
  /** The time step of the last code that was accepted. */
  lastStep: number;
  recoveryCodes: Uint8Array[];
  /** From networks of the account's own, and from elsewhere. */
  attempts: number;
  refusedUntil?: number;
  attemptsElsewhere?: number;
  refusedElsewhereUntil?: number;
}

interface SsoAttemptDocument extends Expiring {
  /** The hash of the state. */
  _id: Uint8Array;
  browserHash: Uint8Array;
  provider: string;
  redirectUri: string;
  expiresAt: number;
}

interface ExternalIdentityDocument {
  /** `linkKey`. */
  _id: string;
  userId: string;
  createdAt: number;
  // Links of earlier versions lack these, and their address is the user's.
  provider?: string;
  username?: string;
  lastUsedAt?: number;
}

interface RemovedIdentityDocument {
  /** The user and `linkKey`. */
  _id: string;
  userId: string;
}

interface KnownNetworkDocument extends Expiring {
  _id: Uint8Array;
  userId: string;
  seenAt: number;
}

interface WindowDocument extends Expiring {
  _id: Uint8Array;
  used: number;
  /** How much the last caller was granted. */
  granted: number;
  endsAt: number;
}

interface SlotLeaseDocument extends Expiring {
  /** The key. */
  _id: Uint8Array;
  holders: { id: string; held: number; endsAt: number }[];
  /** How many the last caller got. */
  held: number;
}

/** Transactions of which only one may succeed conflict on the document of their name. */
interface TurnDocument {
  _id: string;
  taken: number;
}

/** The key of a link: an issuer has no space. */
export function linkKey({ issuer, subject }: { issuer: string; subject: string }): string {
  return `${issuer} ${subject}`;
}

const namesOfUsers = [
  "verifications",
  "password_resets",
  "api_tokens",
  "mails",
  "external_identities",
  "removed_identities",
  "known_networks",
  "second_factors",
];

export type Collections = ReturnType<typeof collectionsOf>;

export const collectionsOf = (db: Db) => ({
  users: db.collection<UserDocument>("users"),
  verifications: db.collection<LinkDocument>("verifications"),
  passwordResets: db.collection<LinkDocument>("password_resets"),
  sessions: db.collection<SessionDocument>("sessions"),
  refreshTokens: db.collection<RefreshTokenDocument>("refresh_tokens"),
  apiTokens: db.collection<ApiTokenDocument>("api_tokens"),
  keys: db.collection<KeyDocument>("keys"),
  mails: db.collection<MailDocument>("mails"),
  secondFactors: db.collection<SecondFactorDocument>("second_factors"),
  ssoAttempts: db.collection<SsoAttemptDocument>("sso_attempts"),
  externalIdentities: db.collection<ExternalIdentityDocument>("external_identities"),
  removedIdentities: db.collection<RemovedIdentityDocument>("removed_identities"),
  knownNetworks: db.collection<KnownNetworkDocument>("known_networks"),
  windows: db.collection<WindowDocument>("request_windows"),
  slotLeases: db.collection<SlotLeaseDocument>("held_slots"),
  turns: db.collection<TurnDocument>("turns"),
  /** What is deleted with the user. Sessions are kept for a while. */
  ofUsers: namesOfUsers.map((name) => db.collection<{ userId: string }>(name)),
});

/** Makes this transaction conflict with every other one of that name, so that they take turns. */
export async function takeTurn({ turns }: Collections, { session }: MongoTransaction, name: string): Promise<void> {
  await turns.updateOne({ _id: name }, { $inc: { taken: 1 } }, { upsert: true, session });
}

/**
 * What an upsert returns. Of two first ones of a key at once, the later one finds the document when it is tried again.
 */
export async function upserted<D>(upsert: () => Promise<D | null>): Promise<D> {
  const found = await upsert().catch((error: unknown) => (isDuplicateKey(error) ? upsert() : Promise.reject(error)));
  if (found === null) throw new Error("an upsert returned no document");
  return found;
}
