import { chmod, mkdir, readdir, readFile, rename, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { exportJWK, generateKeyPair, importJWK, type JSONWebKeySet, type JWK } from "jose";
import { messageOf } from "../base/domain-error.ts";
import type { Logger } from "../base/logging.ts";
import { callerNames } from "../base/service-names.ts";
import { openKeyring } from "../storage/sealing.ts";
import { followFiles } from "./followed-files.ts";
import { createTokenSigner, createTokenVerifier, type TokenSigner, type TokenVerifier } from "./internal-auth.ts";

const algorithm = "EdDSA";
const publicKeysFile = "jwks.json";
const keyringFile = "keyring.json";

export interface KeyFileOptions {
  file: string;
  logger: Logger;
  /** How often the file is read; 2 s unless set. */
  rereadEveryMs?: number;
}

/** A signer or verifier that follows its file until it is closed. */
export type FromFile<T> = T & { close(): void };

/**
 * Signs with the private key in `file`, an Ed25519 JWK whose `kid` is `caller`, or that with a dot and more. Throws for
 * any other key.
 */
export async function openTokenSigner(o: KeyFileOptions & { caller: string }): Promise<FromFile<TokenSigner>> {
  const signer = await followKeyFile(o, async (text) => {
    const jwk: JWK = JSON.parse(text);
    const keyId = jwk.kid ?? "";
    if (callerOf(keyId) !== o.caller) throw new Error(`its kid is "${keyId}", which is not a key of ${o.caller}`);
    if (jwk.kty !== "OKP" || jwk.crv !== "Ed25519" || !jwk.d) throw new Error("it is not a private Ed25519 key");
    const privateKey = await importJWK(jwk, algorithm);
    if (privateKey instanceof Uint8Array) throw new Error("it is not a private Ed25519 key");
    return createTokenSigner({ caller: o.caller, keyId, privateKey });
  });
  return {
    mint: (...of) => signer.current().mint(...of),
    close: signer.close,
  };
}

/** Verifies tokens for `audience` with the public keys of all callers in `file`, a JSON Web Key Set. */
export async function openTokenVerifier(o: KeyFileOptions & { audience: string }): Promise<FromFile<TokenVerifier>> {
  const verifier = await followKeyFile(o, async (text) => {
    const jwks = readPublicKeys(text);
    return createTokenVerifier({ audience: o.audience, jwks });
  });
  return { verify: (authorization) => verifier.current().verify(authorization), close: verifier.close };
}

function followKeyFile<T>({ file, ...o }: KeyFileOptions, parse: (text: string) => Promise<T>) {
  return followFiles({ ...o, what: "key file", files: [file], parse: ([text = ""]) => parse(text) });
}

function callerOf(keyId: string): string {
  return keyId.split(".", 1)[0] ?? "";
}

function readPublicKeys(text: string): JSONWebKeySet {
  const jwks: JSONWebKeySet = JSON.parse(text);
  if (!Array.isArray(jwks.keys)) throw new Error("it is not a JSON Web Key Set");
  if (jwks.keys.some((key) => key.d !== undefined)) throw new Error("it holds a private key");
  return jwks;
}

/**
 * Creates the keys of one installation in an empty or new folder: a private key for each caller (`facade.jwk.json`, …),
 * all public keys (`jwks.json`) and the key ring that seals secrets (`keyring.json`). Only their owner can read them,
 * except for the public keys.
 */
export async function makeKeys(folder: string): Promise<string[]> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const keys: JWK[] = [];
  const files: string[] = [];
  for (const caller of callerNames) {
    const { file, publicKey } = await makeKey(folder, caller);
    keys.push(publicKey);
    files.push(file);
  }
  await openKeyring({ file: join(folder, keyringFile), create: true });
  await writePublicKeys(folder, { keys }, "wx");
  return [...files, publicKeysFile, keyringFile];
}

/**
 * Adds a key for a caller to the folder's public keys. The number in its `kid` is higher than that of any of the caller's
 * keys, dropped ones included, whose files stay in the folder. Returns its file.
 */
export async function addKey(folder: string, caller: string): Promise<string> {
  if (!callerNames.some((known) => known === caller)) {
    throw new Error(`"${caller}" is none of ${callerNames.join(", ")}.`);
  }
  const jwks = readPublicKeys(await readFile(join(folder, publicKeysFile), "utf8"));
  const keyIds = [...jwks.keys.map(({ kid = "" }) => kid), ...(await readdir(folder))];
  const numbers = keyIds
    .filter((keyId) => callerOf(keyId) === caller)
    .map((keyId) => Number.parseInt(keyId.slice(caller.length + 1), 10) || 1);
  const { file, publicKey } = await makeKey(folder, `${caller}.${Math.max(1, ...numbers) + 1}`);
  await writePublicKeys(folder, { keys: [...jwks.keys, publicKey] });
  return file;
}

/** Removes a key from the folder's public keys. Within seconds its tokens are refused everywhere. */
export async function dropKey(folder: string, keyId: string): Promise<void> {
  const jwks = readPublicKeys(await readFile(join(folder, publicKeysFile), "utf8"));
  const keys = jwks.keys.filter(({ kid }) => kid !== keyId);
  if (keys.length === jwks.keys.length) throw new Error(`There is no public key "${keyId}".`);
  await writePublicKeys(folder, { keys });
}

async function makeKey(folder: string, keyId: string): Promise<{ file: string; publicKey: JWK }> {
  const { privateKey, publicKey } = await generateKeyPair(algorithm, { crv: "Ed25519", extractable: true });
  const about = { kid: keyId, alg: algorithm, use: "sig" };
  const file = `${keyId}.jwk.json`;
  const text = `${JSON.stringify({ ...(await exportJWK(privateKey)), ...about })}\n`;
  await writeFile(join(folder, file), text, { mode: 0o600, flag: "wx" });
  return { file, publicKey: { ...(await exportJWK(publicKey)), ...about } };
}

/** Readers see the old file or the new one, never a part of it. */
async function writePublicKeys(folder: string, jwks: JSONWebKeySet, flag?: "wx"): Promise<void> {
  const file = join(folder, publicKeysFile);
  const text = `${JSON.stringify(jwks, null, 2)}\n`;
  if (flag) return writeFile(file, text, { mode: 0o644, flag });
  await writeFile(`${file}.new`, text, { mode: 0o644 });
  await chmod(`${file}.new`, 0o644);
  await rename(`${file}.new`, file);
}

const usage = `The keys with which the processes of one installation trust each other, in a folder:
  make <folder>           creates a private key for each caller, jwks.json with the public keys, and keyring.json
  add <folder> <caller>   adds a key for a caller: <caller>.<n>.jwk.json, and its public half in jwks.json
  drop <folder> <kid>     removes a public key from jwks.json
To change a caller's key: add a key, distribute jwks.json, wait 5 s, replace the file that SANDGATE_INTERNAL_KEY_FILE
names, wait a minute, drop the old key and distribute jwks.json again. No process needs a restart.
`;

async function runCommand([command, folder, name]: readonly string[]): Promise<string> {
  if (command === "make" && folder) return `${(await makeKeys(folder)).join("\n")}\n`;
  if (command === "add" && folder && name) return `${await addKey(folder, name)}\n`;
  if (command === "drop" && folder && name) return dropKey(folder, name).then(() => "");
  throw new Error(usage);
}

if (import.meta.main) {
  try {
    process.stdout.write(await runCommand(process.argv.slice(2)));
  } catch (error) {
    process.stderr.write(`${basename(import.meta.filename)}: ${messageOf(error)}\n`);
    process.exitCode = 1;
  }
}
