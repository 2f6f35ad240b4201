import { createCipheriv, createDecipheriv, createHash, hkdfSync, randomBytes } from "node:crypto";
import { chmod, link, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname } from "node:path";

/**
 * Where a sealed value is stored. It is authenticated with the value, so a value that was copied elsewhere doesn't open
 * there.
 */
interface SealingContext {
  service: string;
  table: string;
  record: string;
  workspace?: string;
}

export interface Keyring {
  /** The key that seals new values. */
  readonly currentKeyId: string;
  readonly otherKeyIds: readonly string[];
  hasKey(id: string): boolean;
  /** Returns the key that a sealed value needs. Throws if the bytes are not a sealed value. */
  keyIdOf(sealed: Uint8Array): string;
  seal(plain: Uint8Array, context: SealingContext): Uint8Array;
  /**
   * Throws if the value was changed, belongs elsewhere, or needs a key that the ring lacks; the message names the key.
   */
  open(sealed: Uint8Array, context: SealingContext): Uint8Array;
  /** A key of 32 bytes for each key of the ring, the current one first. Other purposes have other keys. */
  derive(purpose: string): Buffer[];
}

/** Keys of 32 bytes by their ids, in base64. `current` seals; every key opens. */
export interface RingFile {
  current: string;
  keys: Record<string, string>;
}

const keyBytes = 32;
const nonceBytes = 12;
const tagBytes = 16;
const wrappedBytes = nonceBytes + keyBytes + tagBytes;
const version = 1;
const remedy = "set SANDGATE_KEYS_FILE to the ring that was in use with this database";

/**
 * Opens the key ring in `file`. With `create`, a missing file is created with one new key; only its owner can read it.
 * Throws if the file can't be used. A sealed value consists of version, key id length, key id, the data key wrapped
 * with that key, nonce, ciphertext and tag.
 */
export async function openKeyring(o: { file: string; create: boolean }): Promise<Keyring> {
  const { current, keys } = await readRing(o.file, o.create);
  const currentKey = keys.get(current);
  if (!currentKey) throw new Error(`The key ring ${o.file} doesn't hold its current key "${current}".`);

  const readHead = (sealed: Uint8Array): Buffer => {
    const bytes = Buffer.from(sealed.buffer, sealed.byteOffset, sealed.byteLength);
    const headBytes = 2 + (bytes[1] ?? 0);
    if (bytes[0] !== version || bytes.length < headBytes + wrappedBytes + nonceBytes + tagBytes) {
      throw new Error("The sealed value is damaged.");
    }
    return bytes.subarray(0, headBytes);
  };
  const keyIdOf = (sealed: Uint8Array) => readHead(sealed).subarray(2).toString();

  return {
    currentKeyId: current,
    otherKeyIds: [...keys.keys()].filter((id) => id !== current),
    hasKey: (id) => keys.has(id),
    keyIdOf,
    seal(plain, context) {
      const dataKey = randomBytes(keyBytes);
      const head = headOf(current);
      const aad = Buffer.concat([head, encodeContext(context)]);
      return Buffer.concat([head, encrypt(currentKey, dataKey, aad), encrypt(dataKey, plain, aad)]);
    },
    open(sealed, context) {
      const head = readHead(sealed);
      const keyId = keyIdOf(sealed);
      const body = Buffer.from(sealed.buffer, sealed.byteOffset, sealed.byteLength).subarray(head.length);
      const key = keys.get(keyId);
      const what = `a record of ${context.service} (${context.table})`;
      if (!key) {
        throw new Error(
          `${what} is sealed with the key "${keyId}", which the key ring ${o.file} doesn't hold: ${remedy}`,
        );
      }
      const aad = Buffer.concat([head, encodeContext(context)]);
      try {
        const dataKey = decrypt(key, body.subarray(0, wrappedBytes), aad);
        return decrypt(dataKey, body.subarray(wrappedBytes), aad);
      } catch (cause) {
        throw new Error(
          `${what} doesn't open with the key "${keyId}" of the key ring ${o.file}. If that ring belongs to another database, ${remedy}; otherwise the record was changed`,
          { cause },
        );
      }
    },
    derive: (purpose) =>
      [...new Set([currentKey, ...keys.values()])].map((key) =>
        // RFC 5869. The ring's keys are random, so they need no salt.
        Buffer.from(hkdfSync("sha256", key, "", purpose, keyBytes)),
      ),
  };
}

/** How every value begins that this key seals: with the version, the length of the key's id, and the id. */
export function headOf(keyId: string): Buffer {
  const id = Buffer.from(keyId);
  return Buffer.concat([Buffer.from([version, id.length]), id]);
}

function encodeContext(context: SealingContext): Buffer {
  return Buffer.from(JSON.stringify([context.service, context.table, context.record, context.workspace ?? null]));
}

function encrypt(key: Buffer, plain: Uint8Array, aad: Buffer): Buffer {
  const nonce = randomBytes(nonceBytes);
  const cipher = createCipheriv("aes-256-gcm", key, nonce).setAAD(aad);
  return Buffer.concat([nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
}

function decrypt(key: Buffer, sealed: Buffer, aad: Buffer): Buffer {
  const decipher = createDecipheriv("aes-256-gcm", key, sealed.subarray(0, nonceBytes), { authTagLength: tagBytes });
  decipher.setAAD(aad).setAuthTag(sealed.subarray(sealed.length - tagBytes));
  return Buffer.concat([decipher.update(sealed.subarray(nonceBytes, sealed.length - tagBytes)), decipher.final()]);
}

async function readRing(file: string, create: boolean): Promise<{ current: string; keys: Map<string, Buffer> }> {
  const text = await readOrCreate(file, create);
  const ring = parseRing(text);
  if (!ring) throw new Error(`The key ring ${file} can't be read: it must hold {"current": id, "keys": {id: base64}}.`);
  const keys = new Map<string, Buffer>();
  for (const [id, value] of Object.entries(ring.keys)) {
    const key = Buffer.from(value, "base64");
    if (key.length !== keyBytes || id === "" || Buffer.byteLength(id) > 255) {
      throw new Error(`The key ring ${file} holds a bad key "${id}": it must be ${keyBytes} bytes in base64.`);
    }
    keys.set(id, key);
  }
  return { current: ring.current, keys };
}

/**
 * Creates a key in base64 with its id: today's date and the start of its hash, which distinguishes it from another
 * ring's of the same day.
 */
export function newRingKey(): { id: string; key: string } {
  const key = randomBytes(keyBytes);
  const fingerprint = createHash("sha256").update(key).digest("hex").slice(0, 8);
  return { id: `${new Date().toISOString().slice(0, 10)}-${fingerprint}`, key: key.toString("base64") };
}

async function readOrCreate(file: string, create: boolean): Promise<string> {
  try {
    const text = await readFile(file, "utf8");
    if (create) await chmod(file, 0o600);
    return text;
  } catch (error) {
    if (!isErrno(error, "ENOENT")) throw error;
    if (!create) throw new Error(`The key ring ${file} is missing: ${remedy}`, { cause: error });
  }
  const { id, key } = newRingKey();
  const ring: RingFile = { current: id, keys: { [id]: key } };
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  // The complete file is linked into place, so a crash leaves no partial ring and only one of two concurrent starts
  // wins.
  const draft = `${file}.${process.pid}.${randomBytes(4).toString("hex")}`;
  await writeFile(draft, `${JSON.stringify(ring, undefined, 2)}\n`, { mode: 0o600, flag: "wx", flush: true });
  try {
    await link(draft, file);
  } catch (error) {
    if (!isErrno(error, "EEXIST")) throw error;
  } finally {
    await rm(draft);
  }
  return readFile(file, "utf8");
}

/** Parses the text of a key ring's file. Returns undefined if it is not one. */
export function parseRing(text: string): RingFile | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof value !== "object" || value === null || !("current" in value) || !("keys" in value)) return undefined;
  const { current, keys } = value;
  if (typeof current !== "string" || typeof keys !== "object" || keys === null) return undefined;
  const entries: [string, string][] = [];
  for (const [id, key] of Object.entries(keys)) {
    if (typeof key !== "string") return undefined;
    entries.push([id, key]);
  }
  return { current, keys: Object.fromEntries(entries) };
}

function isErrno(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}
