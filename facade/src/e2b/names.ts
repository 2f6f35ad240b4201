import { createHmac, timingSafeEqual } from "node:crypto";
import { newId } from "@sandgate/kit/base/ids";
import { asFacade } from "@sandgate/kit/rpc/context";
import { LoadingCache } from "../pipeline/admission/loading-cache.ts";
import type { Clients } from "../pipeline/base/clients.ts";

/**
 * The names and tokens that programs written for E2B get. They follow from the sandbox, the API token and the platform's
 * keys, so nothing of them is stored.
 */
export interface Names {
  /** What a sandbox is called: 50 letters and digits, of which nobody guesses one. */
  toSandboxName(sandboxId: string): Promise<string>;
  /** The id of the sandbox that has this name. Undefined: none was ever called so. */
  fromSandboxName(name: string): Promise<string | undefined>;
  /** What opens one sandbox for one API token. */
  toAccessToken(sandboxId: string, tokenId: string): Promise<string>;
  /** All that do: one by each key that names still hold by. */
  toAccessTokens(sandboxId: string, tokenId: string): Promise<string[]>;
  /** What opens the ports of a sandbox that doesn't open them to everybody. */
  toTrafficToken(sandboxId: string): Promise<string>;
  isTrafficToken(sandboxId: string, token: string): Promise<boolean>;
  /** The id of the API token that an access token of the sandbox stands for. Undefined: it is none. */
  fromAccessToken(sandboxId: string, accessToken: string): Promise<string | undefined>;
}

const idBytes = 16;
const macBytes = 16;
/** Digits of 32 bytes in base 36. */
const textLength = 50;
/** Of 32 bytes in base64url. */
const tokenLength = 43;
/** A changed key ring holds from the next start of the sandbox service on. */
const keyAgeMs = 60_000;

export function createNames({ sandbox }: Pick<Clients, "sandbox">): Names {
  const cached = new LoadingCache<[Uint8Array, ...Uint8Array[]]>({ maxAgeMs: keyAgeMs });

  function findKeys(): Promise<[Uint8Array, ...Uint8Array[]]> {
    return cached.get("", async () => {
      const { keys } = await sandbox.deriveKeys({ purpose: "e2b" }, asFacade({ requestId: newId() }));
      const [current, ...others] = keys;
      if (!current) throw new Error("The sandbox service derived no key.");
      return [current, ...others];
    });
  }

  /** The authenticated bytes followed by what proves them. */
  async function seal(what: string, context: string, id: string): Promise<Buffer> {
    const [key] = await findKeys();
    return sealBy(key, what, context, id);
  }

  async function open(what: string, context: string, sealed: Buffer | undefined): Promise<string | undefined> {
    if (sealed?.length !== idBytes + macBytes) return undefined;
    const id = toUuid(sealed.subarray(0, idBytes));
    const given = sealed.subarray(idBytes);
    const keys = await findKeys();
    return keys.some((key) => timingSafeEqual(given, macOf(key, what, context, id))) ? id : undefined;
  }

  return {
    toSandboxName: async (sandboxId) => toText(await seal("sandbox", "", sandboxId)),
    fromSandboxName: (name) => open("sandbox", "", fromText(name)),
    toTrafficToken: async (sandboxId) => (await seal("traffic", "", sandboxId)).toString("base64url"),
    isTrafficToken: async (sandboxId, token) => (await open("traffic", "", fromBase64(token))) === sandboxId,
    toAccessToken: async (sandboxId, tokenId) => (await seal("access", sandboxId, tokenId)).toString("base64url"),
    async toAccessTokens(sandboxId, tokenId) {
      return (await findKeys()).map((key) => sealBy(key, "access", sandboxId, tokenId).toString("base64url"));
    },
    fromAccessToken: (sandboxId, accessToken) =>
      open("access", sandboxId, accessToken.length === tokenLength ? Buffer.from(accessToken, "base64url") : undefined),
  };
}

function sealBy(key: Uint8Array, what: string, context: string, id: string): Buffer {
  return Buffer.concat([toBytes(id), macOf(key, what, context, id)]);
}

function macOf(key: Uint8Array, ...parts: string[]): Buffer {
  return createHmac("sha256", key).update(JSON.stringify(parts)).digest().subarray(0, macBytes);
}

function toBytes(uuid: string): Buffer {
  return Buffer.from(uuid.replaceAll("-", ""), "hex");
}

function toUuid(bytes: Buffer): string {
  return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

function fromBase64(token: string): Buffer | undefined {
  return token.length === tokenLength ? Buffer.from(token, "base64url") : undefined;
}

/** In base 36, whose digits host names and paths take as they are. */
function toText(bytes: Buffer): string {
  return BigInt(`0x${bytes.toString("hex")}`)
    .toString(36)
    .padStart(textLength, "0");
}

/** The bytes whose text this is, in the one form that `toText` gives it. */
function fromText(text: string): Buffer | undefined {
  if (text.length !== textLength || !/^[0-9a-z]+$/.test(text)) return undefined;
  let value = 0n;
  for (const digit of text) value = value * 36n + BigInt(Number.parseInt(digit, 36));
  const hex = value.toString(16).padStart(2 * (idBytes + macBytes), "0");
  return Buffer.from(hex, "hex");
}
