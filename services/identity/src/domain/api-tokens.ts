import { randomBytes } from "node:crypto";
import { crc32 } from "node:zlib";

/** An API token without its secret. Times are epoch milliseconds. */
export interface ApiToken {
  id: string;
  userId: string;
  description: string;
  /** The token's first characters, enough to tell it from others. */
  hint: string;
  /** Undefined: good in every workspace of the user. */
  workspaceId: string | undefined;
  /** Undefined: never. */
  expiresAt: number | undefined;
  createdAt: number;
  /** Kept to the minute. Undefined: not used yet. */
  lastUsedAt: number | undefined;
}

const PREFIX = "sgt_";
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/** 30 characters of base62 hold 178 bits. */
const SECRET_CHARACTERS = 30;
/** 62^6 is more than 2^32. */
const CHECKSUM_CHARACTERS = 6;
const HINT_CHARACTERS = 8;
const TOKEN_FORM = new RegExp(`^${PREFIX}[0-9A-Za-z]{${SECRET_CHARACTERS + CHECKSUM_CHARACTERS}}$`);

/** `sgt_`, 30 random characters of base62 and 6 of their CRC32, so that a secret scanner can tell a real one. */
export function newApiToken(): string {
  const body = PREFIX + randomCharacters(SECRET_CHARACTERS);
  return body + checksum(body);
}

/** Whether the text can be an API token at all. What fails here needs no look into the database. */
export function isApiToken(text: string): boolean {
  return TOKEN_FORM.test(text) && text.slice(-CHECKSUM_CHARACTERS) === checksum(text.slice(0, -CHECKSUM_CHARACTERS));
}

export function hintOf(token: string): string {
  return token.slice(0, HINT_CHARACTERS);
}

export function isExpired(token: Pick<ApiToken, "expiresAt">, now: number): boolean {
  return token.expiresAt !== undefined && token.expiresAt <= now;
}

export interface UseLog {
  note(token: Pick<ApiToken, "id" | "lastUsedAt">, now: number): void;
  /** What it answers is forgotten here and has to be stored. */
  take(): { id: string; usedAt: number }[];
}

/** Remembers when tokens were used, to the minute, so that a request doesn't cost a write. */
export function createUseLog(): UseLog {
  let uses = new Map<string, number>();
  return {
    note(token, now) {
      const minute = now - (now % 60_000);
      if (token.lastUsedAt === undefined || token.lastUsedAt < minute) uses.set(token.id, minute);
    },
    take() {
      const taken = Array.from(uses, ([id, usedAt]) => ({ id, usedAt }));
      uses = new Map();
      return taken;
    },
  };
}

function checksum(body: string): string {
  let rest = crc32(body);
  let text = "";
  for (let i = 0; i < CHECKSUM_CHARACTERS; i++) {
    text = ALPHABET.charAt(rest % 62) + text;
    rest = Math.floor(rest / 62);
  }
  return text;
}

function randomCharacters(count: number): string {
  let text = "";
  while (text.length < count) {
    // 248 is the greatest multiple of 62 in a byte: greater bytes would favour the alphabet's beginning.
    for (const byte of randomBytes(count)) if (byte < 248 && text.length < count) text += ALPHABET.charAt(byte % 62);
  }
  return text;
}
