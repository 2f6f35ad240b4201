import { DomainError } from "@sandgate/kit/base/domain-error";
import { exportJWK, generateKeyPair, SignJWT } from "jose";
import { beforeEach, expect, test } from "vitest";
import { createSessionVerifier, type SessionVerifier } from "./session-verifier.ts";

let now: number;
/** How far the time of day was set forward or back. */
let steppedMs: number;
let reads: number;
let answer: { keys: object[]; ended: string[]; down?: boolean };
/** When the session expires, and for which requests that was asked. */
let session: { expiresAt: number; asked: string[] };
let verifier: SessionVerifier;

beforeEach(() => {
  now = 1_780_000_000_000;
  steppedMs = 0;
  reads = 0;
  answer = { keys: [], ended: [] };
  session = { expiresAt: now + 1_800_000, asked: [] };
  verifier = createSessionVerifier({
    now: () => now + steppedMs,
    monotonic: () => now,
    async readKeys() {
      reads += 1;
      if (answer.down) throw new DomainError("UPSTREAM_ERROR", "identity is down");
      return {
        $typeName: "sandgate.identity.v1.GetSigningKeysResponse",
        jwks: JSON.stringify({ keys: answer.keys }),
        endedSessionIds: [...answer.ended],
        issuer: "i",
        audience: "a",
      };
    },
    async readSession({ credentialId }, requestId) {
      session.asked.push(`${credentialId} ${requestId}`);
      if (answer.down) throw new DomainError("UPSTREAM_ERROR", "identity is down");
      if (session.expiresAt <= now) throw new DomainError("INVALID_TOKEN", "The session has ended.");
      return { $typeName: "sandgate.identity.v1.GetSessionResponse", expiresInMs: session.expiresAt - now };
    },
  });
});

/** Publishes a new key beside the others and signs a token with it. */
async function signWithNewKey(kid: string): Promise<string> {
  const { privateKey, publicKey } = await generateKeyPair("EdDSA");
  answer.keys.push({ ...(await exportJWK(publicKey)), kid, alg: "EdDSA" });
  return new SignJWT({ sid: `session-${kid}`, op: true })
    .setProtectedHeader({ alg: "EdDSA", kid, typ: "at+jwt" })
    .setIssuer("i")
    .setAudience("a")
    .setSubject("u")
    .setExpirationTime(now / 1000 + 300)
    .sign(privateKey);
}

test("reads keys and ended sessions again when they are a second old, and not earlier", async () => {
  const token = await signWithNewKey("k1");
  const user = { id: "u", credential: "session", credentialId: "session-k1", operator: true };
  const signedIn = { user, keyId: "k1", livesUntil: now + 300_000 };
  expect(await Promise.all([verifier.verify(token, "r"), verifier.verify(token, "r")])).toEqual([signedIn, signedIn]);
  answer.ended = ["session-k1"];
  now += 999;
  expect(await verifier.verify(token, "r")).toEqual(signedIn);
  expect(reads).toBe(1);
  now += 1;
  await expect(verifier.verify(token, "r")).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
  expect(reads).toBe(2);
});

test("keeps a session ended once it was notified, whatever the next answers say", async () => {
  const token = await signWithNewKey("k1");
  await verifier.verify(token, "r");
  verifier.end("session-k1");
  await expect(verifier.verify(token, "r")).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
  now += 2000;
  await expect(verifier.verify(token, "r")).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
});

test("takes a new key, and refuses the tokens of a withdrawn one", async () => {
  const old = await signWithNewKey("k1");
  await verifier.verify(old, "r");
  const fresh = await signWithNewKey("k2");
  answer.keys.shift();
  now += 1000;
  expect(await verifier.verify(fresh, "r")).toMatchObject({ user: { credentialId: "session-k2" } });
  await expect(verifier.verify(old, "r")).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
});

test("knows of ended sessions and withdrawn keys within a second, also when the clock is set back", async () => {
  const tokens = [await signWithNewKey("k1"), await signWithNewKey("k2")] as const;
  for (const token of tokens) await verifier.verify(token, "r");
  answer.ended = ["session-k1"];
  answer.keys.pop();
  steppedMs = -120_000;
  now += 1_000;
  for (const token of tokens) {
    await expect(verifier.verify(token, "r")).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
  }
});

test("remembers no token that was being verified when its key was withdrawn", async () => {
  await verifier.verify(await signWithNewKey("k1"), "r");
  const stolen = await signWithNewKey("k2");
  now += 1_000;
  const [, other] = [await verifier.verify(await signWithNewKey("k3"), "r"), await signWithNewKey("k4")];
  const verifying = verifier.verify(stolen, "r");
  answer.keys = answer.keys.slice(-1);
  now += 1_000;
  // Reading the keys takes no turn of the event loop, and verifying a signature does.
  await Promise.all([verifier.verify(other, "r"), verifying]);
  await expect(verifier.verify(stolen, "r")).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
});

test("refuses a remembered token once its time is up", async () => {
  const token = await signWithNewKey("k1");
  await verifier.verify(token, "r");
  now += 300_000;
  await expect(verifier.verify(token, "r")).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
});

test("verifies no token by keys and ended sessions that it can't read again", async () => {
  const token = await signWithNewKey("k1");
  await verifier.verify(token, "r");
  answer.down = true;
  now += 1000;
  await expect(verifier.verify(token, "r")).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
  answer.down = false;
  expect(await verifier.verify(token, "r")).toMatchObject({ user: { id: "u" } });
});

test("an open request of a token ends with its session, and with the key that signed it", async () => {
  const signedIn = await verifier.verify(await signWithNewKey("k1"), "r");
  now += 300_000;
  await verifier.confirm(signedIn, "r");
  await signWithNewKey("k2");
  answer.keys.shift();
  now += 1000;
  await expect(verifier.confirm(signedIn, "r")).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
  const token = await signWithNewKey("k3");
  now += 1000;
  const other = await verifier.verify(token, "r");
  await verifier.confirm(other, "r");
  verifier.end("session-k3");
  await expect(verifier.confirm(other, "r")).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
});

test("an open request ends when its session expires, about which identity is asked only then", async () => {
  let signedIn = await verifier.verify(await signWithNewKey("k1"), "r");
  async function confirm(atMs: number): Promise<void> {
    now = atMs;
    signedIn = await verifier.confirm(signedIn, `${atMs - started}`);
  }
  const started = now;
  await confirm(started + 299_999);
  expect(session.asked).toEqual([]);
  await confirm(started + 300_000);
  await confirm(started + 1_799_999);
  // It is refreshed meanwhile.
  session.expiresAt += 1_000_000;
  await confirm(started + 1_800_000);
  await confirm(started + 2_799_999);
  await expect(confirm(started + 2_800_000)).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
  expect(session.asked).toEqual(["session-k1 300000", "session-k1 1800000", "session-k1 2800000"]);
});

test("an open request isn't confirmed while identity can't say whether its session lives", async () => {
  const signedIn = await verifier.verify(await signWithNewKey("k1"), "r");
  now += 300_000;
  await verifier.confirm(signedIn, "r");
  answer.down = true;
  await expect(verifier.confirm(signedIn, "r")).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
  answer.down = false;
  await verifier.confirm(signedIn, "r");
});
