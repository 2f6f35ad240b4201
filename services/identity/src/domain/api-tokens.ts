import { randomBytes } from "node:crypto";
import { crc32 } from "node:zlib";
import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import { addMs, dayMs } from "@sandgate/kit/base/time";
import type { Permission, Role } from "@sandgate/proto/common/v1/access";
import type { NewMail } from "./mails.ts";
import type { Budget } from "./rate-counters.ts";
import { hashSecret } from "./tokens.ts";

/** An API token without its secret. */
export interface ApiToken {
  id: string;
  userId: string;
  description: string;
  /** The token's first characters, enough to tell it from others. */
  hint: string;
  /** Undefined: the token is valid in every workspace of the user. Otherwise it has no operator rights. */
  workspaceId: string | undefined;
  /** The highest role that the token has in any workspace, without operator rights. Unspecified: its user's role. */
  role: Role;
  /** What the token may do of what its role may, one or more, in order. Undefined: all of it. */
  permissions: readonly Permission[] | undefined;
  /** Undefined: the token never expires. */
  expiresAt: Date | undefined;
  createdAt: Date;
  /** Stored to the minute. Undefined: the token has not been used. */
  lastUsedAt: Date | undefined;
}

/** What a user requests of a new token. */
export type ApiTokenRequest = Pick<ApiToken, "description" | "workspaceId" | "role" | "permissions" | "expiresAt">;

/** A token as it is stored. */
export interface NewApiToken extends Omit<ApiToken, "lastUsedAt"> {
  tokenHash: Uint8Array;
  /** The session that makes it: a token never has rights that its session lacked, and none begins after its end. */
  sessionId: string;
  /** Notifies the user while the budget lasts. */
  notice: { mail: NewMail; budget: Budget } | undefined;
}

/** Whose token it is, and what the user's rights depend on. */
export interface VerifiedApiToken extends ApiToken {
  operator: boolean;
  /** Whether it was made in a session with a second factor, and its user, an operator, still has one. */
  secondFactor: boolean;
}

/**
 * Whether a user has as many tokens as a user may have. Expired tokens count while they are listed.
 *
 * @param max 0 for no limit
 */
export function hasAllApiTokens(held: number, max: number): boolean {
  return max > 0 && held >= max;
}

const prefix = "sgt_";
const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/** 30 characters of base62 hold 178 bits. */
const secretCharacters = 30;
/** 62^6 is more than 2^32. */
const checksumCharacters = 6;
const hintCharacters = 8;
const tokenPattern = new RegExp(`^${prefix}[0-9A-Za-z]{${secretCharacters + checksumCharacters}}$`);

/** `sgt_`, 30 random characters of base62 and 6 of their CRC32, so that a secret scanner can tell a real one. */
export function newApiToken(): string {
  const body = prefix + randomCharacters(secretCharacters);
  return body + checksum(body);
}

/** Whether the text can be an API token at all. Other texts need no lookup in the database. */
export function isApiToken(text: string): boolean {
  return tokenPattern.test(text) && text.slice(-checksumCharacters) === checksum(text.slice(0, -checksumCharacters));
}

/**
 * What is stored in place of a token. That of a token with permissions differs, so that a version without permissions,
 * which would let it do everything, doesn't find it: beside this one, or after a rollback.
 */
export function hashApiToken(token: string, { permissions }: Pick<ApiToken, "permissions">): Uint8Array {
  return hashSecret(permissions === undefined ? token : `permissions ${token}`);
}

/** The permissions as they are kept: undefined when none was asked for, which means all. */
export function readPermissions(given: readonly Permission[]): readonly Permission[] | undefined {
  return given.length === 0 ? undefined : given.toSorted((a, b) => a - b);
}

export function hintOf(token: string): string {
  return token.slice(0, hintCharacters);
}

export function isExpired(token: Pick<ApiToken, "expiresAt">, now: Date): boolean {
  return token.expiresAt !== undefined && token.expiresAt <= now;
}

/** What a token may be for: something that takes a permission, in a workspace. */
export interface TokenUse {
  workspaceId: string;
  permission: Permission;
}

/** Whether a token is for this, provided that its user is a member of the workspace. */
export function isUsable(
  token: Pick<ApiToken, "workspaceId" | "permissions" | "expiresAt">,
  { workspaceId, permission }: TokenUse,
  now: Date,
): boolean {
  const isOfWorkspace = token.workspaceId === undefined || token.workspaceId === workspaceId;
  return isOfWorkspace && (token.permissions?.includes(permission) ?? true) && !isExpired(token, now);
}

/**
 * When a new token expires: at the requested time, or else at the latest time that is allowed, if there is one. Throws
 * VALIDATION_ERROR for a time that has passed or is too far away.
 *
 * @param maxDays 0 for no limit
 */
export function newTokenExpiry(requested: Date | undefined, maxDays: number, now: Date): Date | undefined {
  const latest = maxDays === 0 ? undefined : addMs(now, maxDays * dayMs);
  if (requested === undefined) return latest;
  if (requested <= now) throw invalid("expires_at", "must be in the future");
  if (latest && requested > latest)
    throw invalid("expires_at", `must be within ${maxDays} days, the limit that an operator has set`);
  return requested;
}

export function tooManyApiTokens(max: number): DomainError {
  return new DomainError("CONFLICT", `You have reached the limit of ${max} API tokens.`, {
    hint: `A user may have ${max} API tokens. Expired ones count while GET /api-tokens lists them. Revoke one, or ask the operator for a higher limit.`,
  });
}

function checksum(body: string): string {
  let remainder = crc32(body);
  let text = "";
  for (let i = 0; i < checksumCharacters; i++) {
    text = alphabet.charAt(remainder % 62) + text;
    remainder = Math.floor(remainder / 62);
  }
  return text;
}

function randomCharacters(count: number): string {
  let text = "";
  while (text.length < count) {
    // 248 is the greatest multiple of 62 in a byte: higher bytes would favour the beginning of the alphabet.
    for (const byte of randomBytes(count)) if (byte < 248 && text.length < count) text += alphabet.charAt(byte % 62);
  }
  return text;
}
