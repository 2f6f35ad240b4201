import { exportJWK, generateKeyPair, SignJWT, UnsecuredJWT } from "jose";
import { beforeAll, expect, test } from "vitest";
import type { UserCaller } from "./context.ts";
import { createInternalKeys, createTokenSigner, createTokenVerifier, type InternalKeys } from "./internal-auth.ts";

const user: UserCaller = {
  id: "u1",
  credential: "api_token",
  credentialId: "t1",
  operator: false,
  workspaceId: "w1",
  role: "admin",
};

let keys: InternalKeys;
beforeAll(async () => {
  keys = await createInternalKeys(["facade", "sandbox", "workspace"]);
});

const refused = { reason: "CALLER_NOT_ALLOWED" };

test("a token carries its caller and user", async () => {
  const verifier = createTokenVerifier({ audience: "sandbox", jwks: keys.jwks });
  const token = await keys.signer("facade").mint("sandbox", { user, passedOn: false });
  expect(await verifier.verify(token)).toEqual({ service: "facade", user });
  expect(await verifier.verify(token)).toEqual({ service: "facade", user });
});

test("a limit of the role is carried, and no claim of more than it is believed", async () => {
  const verifier = createTokenVerifier({ audience: "sandbox", jwks: keys.jwks });
  const verify = async (change: Partial<UserCaller>) =>
    (
      await verifier.verify(
        await keys.signer("facade").mint("sandbox", { user: { ...user, ...change }, passedOn: false }),
      )
    ).user;
  expect(await verify({ roleLimit: "admin" })).toEqual({ ...user, roleLimit: "admin" });
  await expect(verify({ roleLimit: "member" })).rejects.toMatchObject(refused);
  await expect(verify({ roleLimit: "owner", operator: true })).rejects.toMatchObject(refused);
});

test("permissions are carried, though unknown ones, and a claim of them for a session is not believed", async () => {
  const verifier = createTokenVerifier({ audience: "sandbox", jwks: keys.jwks });
  const verify = async (change: object, passedOn = false) => {
    const signer = keys.signer(passedOn ? "workspace" : "facade");
    return (await verifier.verify(await signer.mint("sandbox", { user: { ...user, ...change }, passedOn }))).user;
  };
  const limited = { ...user, permissions: ["read", "use"] };
  expect(await verify({ permissions: ["read", "use"] })).toEqual(limited);
  expect(await verify({ permissions: ["read", "use"] }, true)).toEqual(limited);
  expect(await verify({ permissions: ["later", "read"] })).toEqual({ ...user, permissions: ["read"] });
  expect(await verify({ permissions: ["later"] })).toEqual({ ...user, permissions: [] });
  await expect(verify({ permissions: "read" })).rejects.toMatchObject(refused);
  await expect(verify({ permissions: ["read"], credential: "session" })).rejects.toMatchObject(refused);
});

test("a service passes a user on, and may call for nobody", async () => {
  const verifier = createTokenVerifier({ audience: "workspace", jwks: keys.jwks });
  const signer = keys.signer("sandbox");
  expect(await verifier.verify(await signer.mint("workspace", { user, passedOn: true }))).toEqual({
    service: "sandbox",
    user,
  });
  expect(await verifier.verify(await signer.mint("workspace", { passedOn: false }))).toEqual({ service: "sandbox" });
});

test("only the facade mints users, and it passes none on", async () => {
  await expect(keys.signer("sandbox").mint("workspace", { user, passedOn: false })).rejects.toMatchObject(refused);
  await expect(keys.signer("facade").mint("workspace", { user, passedOn: true })).rejects.toMatchObject(refused);
});

test("the public key set holds no private key", () => {
  for (const key of keys.jwks.keys) expect(key).not.toHaveProperty("d");
});

test("a token is used again for half its life, by the same user, workspace, role and audience", async () => {
  let now = 1_000_000_000_000;
  const { privateKey } = await generateKeyPair("EdDSA");
  const signer = createTokenSigner({ caller: "facade", keyId: "facade", privateKey, now: () => now });
  const mint = (change: Partial<UserCaller> = {}, audience = "sandbox") =>
    signer.mint(audience, { user: { ...user, ...change }, passedOn: false });
  const first = await mint();
  now += 29_000;
  expect(await mint()).toBe(first);
  const others = await Promise.all([
    mint({ role: "member" }),
    mint({ roleLimit: "admin" }),
    mint({ permissions: ["read"] }),
    mint({ workspaceId: "w2" }),
    mint({ credentialId: "t2" }),
    mint({ operator: true }),
    mint({}, "workspace"),
  ]);
  expect(new Set([first, ...others]).size).toBe(8);
  now += 2_000;
  expect(await mint()).not.toBe(first);
});

test("a caller whose clock was ten minutes wrong is answered as soon as it is right, and after each correction", async () => {
  let now = 1_000_000_000_000;
  let wrongMs = 0;
  const { privateKey, publicKey } = await generateKeyPair("EdDSA");
  const jwks = { keys: [{ ...(await exportJWK(publicKey)), kid: "sandbox" }] };
  const signer = createTokenSigner({ caller: "sandbox", keyId: "sandbox", privateKey, now: () => now + wrongMs });
  const verifier = createTokenVerifier({ audience: "workspace", jwks, now: () => now, monotonic: () => now });
  const call = async () => verifier.verify(await signer.mint("workspace", { passedOn: false }));
  for (const minutes of [10, -10]) {
    wrongMs = minutes * 60_000;
    await expect(call()).rejects.toMatchObject(refused);
    wrongMs = 0;
    expect(await call()).toEqual({ service: "sandbox" });
    now += 29_000;
    expect(await call()).toEqual({ service: "sandbox" });
    now += 60_000;
  }
});

test("a remembered token ends in time although the clock was set back", async () => {
  let now = 1_000_000_000_000;
  let setBackMs = 0;
  const { privateKey, publicKey } = await generateKeyPair("EdDSA");
  const jwks = { keys: [{ ...(await exportJWK(publicKey)), kid: "sandbox" }] };
  const signer = createTokenSigner({ caller: "sandbox", keyId: "sandbox", privateKey, now: () => now });
  const clocks = { now: () => now - setBackMs, monotonic: () => now };
  const verifier = createTokenVerifier({ audience: "workspace", jwks, ...clocks });
  const token = await signer.mint("workspace", { passedOn: false });
  await verifier.verify(token);
  setBackMs = 600_000;
  now += 59_000;
  expect(await verifier.verify(token)).toEqual({ service: "sandbox" });
  now += 1_000;
  await expect(verifier.verify(token)).rejects.toMatchObject(refused);
});

test("a token ends after 60 s, remembered or not", async () => {
  let now = Date.now();
  const { privateKey, publicKey } = await generateKeyPair("EdDSA");
  const jwks = { keys: [{ ...(await exportJWK(publicKey)), kid: "sandbox.2" }] };
  const signer = createTokenSigner({ caller: "sandbox", keyId: "sandbox.2", privateKey, now: () => now });
  const token = await signer.mint("workspace", { passedOn: false });
  const clocks = { now: () => now, monotonic: () => now };
  const verifier = createTokenVerifier({ audience: "workspace", jwks, ...clocks });
  expect(await verifier.verify(token)).toEqual({ service: "sandbox" });
  now += 70_000;
  await expect(verifier.verify(token)).rejects.toMatchObject(refused);
  const fresh = createTokenVerifier({ audience: "workspace", jwks, ...clocks });
  await expect(fresh.verify(token)).rejects.toMatchObject(refused);
});

test("a token for one service is refused by another", async () => {
  const verifier = createTokenVerifier({ audience: "workspace", jwks: keys.jwks });
  const token = await keys.signer("facade").mint("sandbox", { user, passedOn: false });
  await expect(verifier.verify(token)).rejects.toMatchObject(refused);
});

test("hostile tokens are refused", async () => {
  const own = await generateKeyPair("EdDSA", { extractable: true });
  const stranger = await generateKeyPair("EdDSA");
  const other = await generateKeyPair("ES256");
  const publicJwk = await exportJWK(own.publicKey);
  const jwks = {
    keys: [
      { ...publicJwk, kid: "facade" },
      { ...(await exportJWK(stranger.publicKey)), kid: "sandbox" },
      { ...(await exportJWK(other.publicKey)), kid: "facade.es" },
    ],
  };
  const verifier = createTokenVerifier({ audience: "workspace", jwks });
  const header = { alg: "EdDSA", typ: "sandgate-internal+jwt", kid: "facade" };
  const now = Math.floor(Date.now() / 1000);
  const claims = { iss: "facade", aud: "workspace", iat: now, exp: now + 60 };
  const userClaims = { id: "u1", credential: "session", credential_id: "s1", operator: false };
  const sign = (
    h: Partial<typeof header>,
    c: Record<string, unknown>,
    key: Parameters<SignJWT["sign"]>[0] = own.privateKey,
  ) => new SignJWT({ ...claims, ...c }).setProtectedHeader({ ...header, ...h }).sign(key);

  const good = await sign({}, { user: userClaims });
  expect(await verifier.verify(`Bearer ${good}`)).toMatchObject({ user: { id: "u1" } });
  for (const authorization of [undefined, "", good, `Basic ${good}`, `bearer ${good}`]) {
    await expect(verifier.verify(authorization), authorization).rejects.toMatchObject(refused);
  }

  const [head = "", , signature = ""] = good.split(".");
  const forgedBody = Buffer.from(JSON.stringify({ ...claims, user: { ...userClaims, operator: true } }));
  const publicBytes = new TextEncoder().encode(publicJwk.x ?? "");
  const { kid: _, ...withoutKeyId } = header;
  const hostile: Record<string, string> = {
    empty: "",
    garbage: "a.b.c",
    unsigned: new UnsecuredJWT({ ...claims, user: userClaims }).encode(),
    "changed claims": `${head}.${forgedBody.toString("base64url")}.${signature}`,
    "signed by a stranger": await sign({}, {}, (await generateKeyPair("EdDSA")).privateKey),
    "an unknown key": await sign({ kid: "ghost" }, {}),
    "no key id": await new SignJWT(claims).setProtectedHeader(withoutKeyId).sign(own.privateKey),
    "another caller's name": await sign({ kid: "sandbox" }, { iss: "facade" }, stranger.privateKey),
    "another caller's key": await sign({}, { iss: "sandbox" }),
    "HMAC with the public key": await sign({ alg: "HS256" }, {}, publicBytes),
    "another algorithm": await sign({ alg: "ES256", kid: "facade.es" }, {}, other.privateKey),
    "another type": await sign({ typ: "JWT" }, {}),
    expired: await sign({}, { iat: now - 120, exp: now - 61 }),
    "a long life": await sign({}, { exp: now + 3600 }),
    "issued in the future": await sign({}, { iat: now + 30, exp: now + 60 }),
    "an old one, long lived": await sign({}, { iat: now - 120 }),
    "no end": await sign({}, { exp: undefined }),
    "no start": await sign({}, { iat: undefined }),
    "another audience": await sign({}, { aud: "sandbox" }),
    "no audience": await sign({}, { aud: undefined }),
    "a service with a user of its own": await sign(
      { kid: "sandbox" },
      { iss: "sandbox", user: userClaims },
      stranger.privateKey,
    ),
    "a facade that passes on": await sign({}, { act: userClaims }),
    "a user without id": await sign({}, { user: { ...userClaims, id: undefined } }),
    "an unknown role": await sign({}, { user: { ...userClaims, workspace_id: "w1", role: "root" } }),
    "an unknown credential": await sign({}, { user: { ...userClaims, credential: "cookie" } }),
    "a user that is a word": await sign({}, { user: "u1" }),
  };
  for (const [name, token] of Object.entries(hostile)) {
    await expect(verifier.verify(`Bearer ${token}`), name).rejects.toMatchObject(refused);
  }
});
