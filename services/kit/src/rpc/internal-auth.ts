import {
  type CryptoKey,
  createLocalJWKSet,
  decodeProtectedHeader,
  exportJWK,
  generateKeyPair,
  type JSONWebKeySet,
  type JWTPayload,
  jwtVerify,
  SignJWT,
} from "jose";
import { DomainError } from "../base/domain-error.ts";
import { monotonicMs } from "../base/time.ts";
import { isPermissionName, isRoleName, toRole } from "./access.ts";
import { type Caller, facade, type Outgoing, type UserCaller } from "./context.ts";

const algorithm = "EdDSA";
const type = "sandgate-internal+jwt";
const scheme = "Bearer ";
const lifeSeconds = 60;
/** How long a token is used again. */
const usedForMs = (lifeSeconds / 2) * 1000;
/** How far the clocks of machines may differ. */
const toleranceSeconds = 5;
const rememberedTokens = 10_000;

/** Signs the tokens of one caller. */
export interface TokenSigner {
  /**
   * Returns an Authorization header with a token for `audience`, the service to be called. A token for the same user is
   * used again during the first half of its life.
   */
  mint(audience: string, outgoing: Pick<Outgoing, "user" | "passedOn">): Promise<string>;
}

/** Checks the tokens that reach one service. */
export interface TokenVerifier {
  /** Checks an Authorization header. Throws CALLER_NOT_ALLOWED for every invalid one. */
  verify(authorization: string | undefined): Promise<Caller>;
}

interface Minted {
  authorization: Promise<string>;
  /** Epoch milliseconds. */
  mintedAt: number;
}

export interface InternalKeys {
  signer(caller: string): TokenSigner;
  /** The public keys. A key's id is its caller, followed by a dot and more if the caller has several. */
  jwks: JSONWebKeySet;
}

/** Creates Ed25519 keys for callers in this process. The keys stay in memory. */
export async function createInternalKeys(callers: readonly string[]): Promise<InternalKeys> {
  const signers = new Map<string, TokenSigner>();
  const jwks: JSONWebKeySet = { keys: [] };
  for (const caller of callers) {
    const { privateKey, publicKey } = await generateKeyPair(algorithm, { crv: "Ed25519" });
    jwks.keys.push({ ...(await exportJWK(publicKey)), kid: caller, alg: algorithm, use: "sig" });
    signers.set(caller, createTokenSigner({ caller, keyId: caller, privateKey }));
  }
  return {
    jwks,
    signer(caller) {
      const signer = signers.get(caller);
      if (!signer) throw new Error(`There is no internal key for the caller "${caller}".`);
      return signer;
    },
  };
}

/** Signs as `caller` with one Ed25519 key. `now` is in epoch milliseconds. */
export function createTokenSigner(o: {
  caller: string;
  keyId: string;
  privateKey: CryptoKey;
  now?: () => number;
}): TokenSigner {
  const now = o.now ?? Date.now;
  /**
   * Headers by audience and user. They are kept rather than tokens, so that a callee in the same process sees the same
   * string again.
   */
  const minted = new Map<string, Map<string, Minted>>();

  return {
    async mint(audience, { user, passedOn }) {
      if (user && passedOn === (o.caller === facade)) {
        throw new DomainError(
          "CALLER_NOT_ALLOWED",
          "Only the facade speaks for users, and services only pass them on.",
        );
      }
      const headers = minted.get(audience) ?? new Map<string, Minted>();
      minted.set(audience, headers);
      const key = user ? keyOf(user) : "";
      const time = now();
      const known = headers.get(key);
      // By the time of day, as the token itself: with a clock that was set back it would be from the future.
      if (known && time >= known.mintedAt && time < known.mintedAt + usedForMs) return known.authorization;
      const issuedAt = Math.floor(time / 1000);
      const claims = user ? { [passedOn ? "act" : "user"]: toUserClaims(user) } : {};
      const authorization = new SignJWT(claims)
        .setProtectedHeader({ alg: algorithm, typ: type, kid: o.keyId })
        .setIssuer(o.caller)
        .setAudience(audience)
        .setIssuedAt(issuedAt)
        .setExpirationTime(issuedAt + lifeSeconds)
        .sign(o.privateKey)
        .then((token) => `${scheme}${token}`);
      remember(headers, key, { authorization, mintedAt: time });
      return authorization;
    },
  };
}

/** Verifies tokens for `audience` against the callers' public keys. `now` is in epoch milliseconds. */
export function createTokenVerifier(o: {
  audience: string;
  jwks: JSONWebKeySet;
  now?: () => number;
  monotonic?: () => number;
}): TokenVerifier {
  const { now = Date.now, monotonic = monotonicMs } = o;
  const keys = createLocalJWKSet(o.jwks);
  /** Until when by the monotonic clock, so that no token outlives itself when the clock is set back. */
  const verified = new Map<string, { caller: Caller; until: number }>();

  return {
    async verify(authorization = "") {
      const known = verified.get(authorization);
      if (known && known.until > monotonic()) return known.caller;
      if (!authorization.startsWith(scheme)) {
        throw new DomainError("CALLER_NOT_ALLOWED", "The call carries no internal token.");
      }
      const token = authorization.slice(scheme.length);
      try {
        // Without a key id, every caller's key of the right kind would be accepted.
        if (!decodeProtectedHeader(token).kid) throw new Error("The token names no key.");
        const { payload, protectedHeader } = await jwtVerify(token, keys, {
          algorithms: [algorithm],
          typ: type,
          audience: o.audience,
          requiredClaims: ["iss", "aud", "iat", "exp"],
          maxTokenAge: lifeSeconds,
          clockTolerance: toleranceSeconds,
          currentDate: new Date(now()),
        });
        const caller = readClaims(payload, protectedHeader.kid ?? "");
        remember(verified, authorization, { caller, until: monotonic() + (payload.exp ?? 0) * 1000 - now() });
        return caller;
      } catch (cause) {
        throw new DomainError("CALLER_NOT_ALLOWED", "The call carries no valid internal token.", { cause });
      }
    },
  };
}

/**
 * Adds an entry and drops the oldest of too many. All live equally long, so the one inserted first is the first to
 * expire.
 */
function remember<V>(map: Map<string, V>, key: string, value: V): void {
  map.delete(key);
  map.set(key, value);
  if (map.size > rememberedTokens) {
    const oldest = map.keys().next();
    if (!oldest.done) map.delete(oldest.value);
  }
}

function readClaims(payload: JWTPayload, keyId: string): Caller {
  const { iss: issuer = "", iat = 0, exp = 0 } = payload;
  if (issuer !== keyId.split(".")[0]) throw new Error(`The key ${keyId} is not one of ${issuer}.`);
  if (exp - iat > lifeSeconds) throw new Error("The token's lifetime is too long.");
  if (payload.user !== undefined && issuer !== facade) throw new Error(`${issuer} may not speak for users.`);
  if (payload.act !== undefined && issuer === facade) throw new Error("The facade may not act for another caller.");
  const claims = payload.user ?? payload.act;
  return claims === undefined ? { service: issuer } : { service: issuer, user: fromUserClaims(claims) };
}

const keys = new WeakMap<UserCaller, string>();

/** Returns a text that is the same for two users only if their tokens say the same. */
function keyOf(user: UserCaller): string {
  let key = keys.get(user);
  if (key === undefined) {
    const { id, credential, credentialId, operator, roleLimit, permissions, workspaceId, role } = user;
    key = JSON.stringify([id, credential, credentialId, operator, roleLimit, permissions, workspaceId, role]);
    keys.set(user, key);
  }
  return key;
}

function toUserClaims(user: UserCaller): Record<string, unknown> {
  return {
    id: user.id,
    credential: user.credential,
    credential_id: user.credentialId,
    operator: user.operator,
    role_limit: user.roleLimit,
    permissions: user.permissions,
    workspace_id: user.workspaceId,
    role: user.role,
  };
}

function fromUserClaims(claims: unknown): UserCaller {
  const bad = new Error("The user's claims are malformed.");
  if (typeof claims !== "object" || claims === null) throw bad;
  const { id, credential, credential_id, operator, role_limit, permissions, workspace_id, role } = claims as Record<
    string,
    unknown
  >;
  if (typeof id !== "string" || typeof credential_id !== "string" || typeof operator !== "boolean") throw bad;
  if (credential !== "session" && credential !== "api_token") throw bad;
  if (workspace_id !== undefined && typeof workspace_id !== "string") throw bad;
  if (role !== undefined && !isRoleName(role)) throw bad;
  if (role_limit !== undefined && !isRoleName(role_limit)) throw bad;
  if (role_limit !== undefined && (operator || (role !== undefined && toRole(role) > toRole(role_limit)))) throw bad;
  if (permissions !== undefined && credential === "session") throw bad;
  if (permissions !== undefined && !Array.isArray(permissions)) throw bad;
  return {
    id,
    credential,
    credentialId: credential_id,
    operator,
    ...(role_limit !== undefined && { roleLimit: role_limit }),
    // One that this version doesn't know permits nothing here.
    ...(permissions !== undefined && { permissions: permissions.filter(isPermissionName) }),
    ...(workspace_id !== undefined && { workspaceId: workspace_id }),
    ...(role !== undefined && { role }),
  };
}
