import { randomBytes } from "node:crypto";
import { newId } from "@sandgate/kit/base/ids";
import { addMs } from "@sandgate/kit/base/time";
import type { Keyring } from "@sandgate/kit/storage/sealing";
import { type CryptoKey, exportJWK, generateKeyPair, importJWK, type JWK, SignJWT } from "jose";
import { accessTokenSeconds, endedSessionMs } from "../domain/sessions.ts";
import {
  findOutdatedKeys,
  keyLifeMs,
  needsNewKey,
  pickSigningKey,
  type StoredKey,
  settlingMs,
} from "../domain/signing-keys.ts";
import type { Keys } from "../store/keys.ts";

const algorithm = "EdDSA";
interface AccessClaims {
  userId: string;
  sessionId: string;
  operator: boolean;
  /** Whether the user is an operator whose session only lacks a second factor for the rights of one. */
  needsSecondFactor: boolean;
}

/** The keys as they were at one moment. */
interface CurrentKeys {
  /** A JWT of RFC 9068's type with `sid` (session), `op` (operator) and `op_needs`, valid for 300 seconds. */
  signAccessToken(claims: AccessClaims): Promise<string>;
  /**
   * The keys that derive the successors of refresh tokens. The newest does so now, an older one did until a day ago at
   * most.
   */
  readonly refreshKeys: readonly Uint8Array[];
}

export interface SigningKeys {
  /** What session tokens say in `iss` and `aud`. */
  readonly issuer: string;
  readonly audience: string;
  /**
   * The keys that are stored now. Read them before the session: if an emergency ends the session meanwhile, its token
   * is signed with a key that was dropped too.
   */
  current(): Promise<CurrentKeys>;
  /** A JWK Set (RFC 7517) of every public key that a valid token may be signed with. */
  publicJwks(): Promise<{ keys: JWK[] }>;
  /** Makes keys when it is time, and removes outdated ones. */
  maintain(): Promise<void>;
  /**
   * Makes a new key of each use. Tokens of the old keys stay valid. Returns when the new key begins to sign session
   * tokens.
   */
  rotate(): Promise<{ signsFrom: Date }>;
  /** Replaces all keys with new ones, which sign at once, and ends all sessions: for keys that were stolen. */
  replaceAll(): Promise<void>;
}

/** Opens the service's keys and creates the first ones. Private parts leave the process only sealed. */
export async function openSigningKeys(options: {
  store: { readonly keys: Keys };
  keyring: Keyring;
  issuer: string;
  audience: string;
  now: () => Date;
}): Promise<SigningKeys> {
  const { store, keyring, issuer, audience, now } = options;
  const importedKeys = new Map<string, CryptoKey>();

  const aboutOf = (id: string) => ({ service: "identity", table: "keys", record: id });

  async function makeSessionKey(): Promise<StoredKey> {
    const id = newId();
    const pair = await generateKeyPair(algorithm, { extractable: true });
    const [privateJwk, publicJwk] = await Promise.all([exportJWK(pair.privateKey), exportJWK(pair.publicKey)]);
    return {
      id,
      use: "session",
      publicJwk: JSON.stringify({ ...publicJwk, kid: id, alg: algorithm, use: "sig" }),
      sealed: keyring.seal(Buffer.from(JSON.stringify(privateJwk)), aboutOf(id)),
      createdAt: now(),
    };
  }

  function makeRefreshKey(): StoredKey {
    const id = newId();
    return {
      id,
      use: "refresh",
      publicJwk: "",
      sealed: keyring.seal(randomBytes(32), aboutOf(id)),
      createdAt: now(),
    };
  }

  const makeKeys = async (): Promise<StoredKey[]> => [await makeSessionKey(), makeRefreshKey()];
  const ofUse = (keys: readonly StoredKey[], use: StoredKey["use"]) => keys.filter((key) => key.use === use);

  async function maintain(): Promise<void> {
    const stored = await store.keys.list();
    const refresh = ofUse(stored, "refresh");
    const session = ofUse(stored, "session");
    if (refresh.length === 0) await store.keys.add(makeRefreshKey(), new Date(0));
    if (needsNewKey(session, now())) await store.keys.add(await makeSessionKey(), addMs(now(), -keyLifeMs));
    const outdated = [session, refresh].flatMap((keys) => findOutdatedKeys(keys, now()));
    if (outdated.length > 0) await store.keys.remove(outdated.map((key) => key.id));
  }

  async function openPrivateKey(key: StoredKey): Promise<CryptoKey> {
    const known = importedKeys.get(key.id);
    if (known) return known;
    const jwk: JWK = JSON.parse(Buffer.from(keyring.open(key.sealed, aboutOf(key.id))).toString());
    const imported = await importJWK(jwk, algorithm);
    if (imported instanceof Uint8Array) throw new Error(`The signing key ${key.id} is not asymmetric.`);
    importedKeys.set(key.id, imported);
    return imported;
  }

  async function current(): Promise<CurrentKeys> {
    const stored = await store.keys.list();
    const key = pickSigningKey(ofUse(stored, "session"), now());
    if (!key) throw new Error("There is no key to sign session tokens with.");
    const refreshKeys = ofUse(stored, "refresh").map(({ id, sealed }) => keyring.open(sealed, aboutOf(id)));
    if (refreshKeys.length === 0) throw new Error("There is no key to derive refresh tokens with.");
    return { refreshKeys, signAccessToken: (claims) => sign(key, claims) };
  }

  async function sign(key: StoredKey, { userId, sessionId, ...rights }: AccessClaims): Promise<string> {
    const issuedAt = Math.floor(now().getTime() / 1000);
    const claims = {
      sid: sessionId,
      op: rights.operator,
      ...(rights.needsSecondFactor && { op_needs: "second_factor" }),
    };
    return new SignJWT(claims)
      .setProtectedHeader({ alg: algorithm, kid: key.id, typ: "at+jwt" })
      .setIssuer(issuer)
      .setAudience(audience)
      .setSubject(userId)
      .setIssuedAt(issuedAt)
      .setExpirationTime(issuedAt + accessTokenSeconds)
      .sign(await openPrivateKey(key));
  }

  await maintain();
  // A key ring that lacks a key fails the start.
  await current();

  return {
    issuer,
    audience,
    current,
    maintain,
    async publicJwks() {
      return { keys: ofUse(await store.keys.list(), "session").map((key): JWK => JSON.parse(key.publicJwk)) };
    },
    async rotate() {
      const keys = await makeKeys();
      for (const key of keys) await store.keys.add(key, key.createdAt);
      return { signsFrom: addMs(now(), settlingMs) };
    },
    async replaceAll() {
      // The stolen keys go first. A session that has not ended yet may get a token of the new ones, which go with it.
      await store.keys.replace(await makeKeys());
      // Facades are not notified of sessions that ended so long ago, and need not be: no token of them verifies any
      // more.
      await store.keys.replaceAll(await makeKeys(), addMs(now(), -endedSessionMs));
    },
  };
}
