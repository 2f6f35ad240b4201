import { createHash } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { readSettings } from "@sandgate/kit/base/settings";
import { startGithub, type TestGithub } from "@sandgate/test-support/github";
import { startOpenIdProvider, type TestOpenIdProvider } from "@sandgate/test-support/open-id-provider";
import { exportJWK, generateKeyPair, SignJWT } from "jose";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Fetch } from "./outgoing.ts";
import type { SignInSecrets, SsoProvider } from "./provider.ts";
import { createProviders } from "./providers.ts";
import { parseSsoSettings, ssoSettings } from "./settings.ts";

const callbackUrl = "http://127.0.0.1:8080/auth/sso/google/callback";
const secrets: SignInSecrets = {
  state: "state",
  nonce: "nonce",
  codeVerifier: "a verifier of at least 43 characters, or it is refused".replaceAll(" ", "-").replaceAll(",", ""),
};
let now: Date;

/** The first provider of these settings. */
function createProvider(env: Record<string, string>, o: { fetch?: Fetch; timeoutMs?: number } = {}): SsoProvider {
  const settings = readSettings(ssoSettings, { SANDGATE_REDIRECT_URIS: "https://app.test/", ...env });
  const [first] = createProviders(parseSsoSettings(settings), { now: () => now, timeoutMs: 60_000, ...o }).values();
  if (!first) throw new Error("The settings name no provider.");
  return first;
}

beforeEach(() => {
  now = new Date();
});

describe("OpenID Connect", () => {
  let server: TestOpenIdProvider;
  let google: SsoProvider;

  const settings = () => ({
    SANDGATE_SSO_GOOGLE_CLIENT_ID: server.clientId,
    SANDGATE_SSO_GOOGLE_CLIENT_SECRET: server.clientSecret,
    SANDGATE_SSO_GOOGLE_ISSUER: server.issuer,
  });

  beforeEach(async () => {
    server = await startOpenIdProvider({ callbackUrl });
    google = createProvider(settings());
  });
  afterEach(() => server.stop());

  const signIn = async (o: { cancel?: boolean } = {}) =>
    server.signIn((await google.authorizationUrl(callbackUrl, secrets)).href, o);

  test("names the account, with its verified address", async () => {
    expect(await google.identify(await signIn(), secrets)).toEqual({
      issuer: server.issuer,
      subject: "ann",
      email: "ann@example.com",
      emailVerified: true,
    });
  });

  test("asks the userinfo endpoint for what the ID token lacks", async () => {
    server.claimsInIdToken = false;
    await server.rotateKey();
    expect(await google.identify(await signIn(), secrets)).toMatchObject({
      email: "ann@example.com",
      emailVerified: true,
    });
    expect(server.requests).toContain("/me");
  });

  test.each([
    { email: "ann@example.com" },
    { email: "ann@example.com", email_verified: false },
    { email: "ann@example.com", email_verified: "true" },
  ])("tells that an address is not verified: %o", async (claims) => {
    server.account = { sub: "ann", ...claims };
    expect(await google.identify(await signIn(), secrets)).toMatchObject({
      email: "ann@example.com",
      emailVerified: false,
    });
  });

  test.each([
    { email_verified: true },
    { email: "no address", email_verified: true },
    // Its Kelvin sign folds to a k.
    { email: "ann@\u212Aelvin.example", email_verified: true },
    { email: `${"a".repeat(250)}@b.example`, email_verified: true },
  ])("takes no address that can't be a user name, or none: %o", async (claims) => {
    server.account = { sub: "ann", ...claims };
    expect((await google.identify(await signIn(), secrets)).email).toBeUndefined();
  });

  test("is discovered once an hour", async () => {
    const discoveries = () => server.requests.filter((path) => path === "/.well-known/openid-configuration").length;
    await Promise.all([1, 2, 3].map(() => google.authorizationUrl(callbackUrl, secrets)));
    await google.identify(await signIn(), secrets);
    expect(discoveries()).toBe(1);
    now = new Date(now.getTime() + 3_600_000);
    await google.authorizationUrl(callbackUrl, secrets);
    expect(discoveries()).toBe(2);
  });

  test("that is down is discovered once it is back", async () => {
    server.failure = 503;
    await expect(google.authorizationUrl(callbackUrl, secrets)).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
    server.failure = undefined;
    await google.authorizationUrl(callbackUrl, secrets);
  });

  test("is sent a challenge, and the verifier only with the code", async () => {
    const url = await google.authorizationUrl(callbackUrl, secrets);
    const challenge = createHash("sha256").update(secrets.codeVerifier).digest("base64url");
    expect(Object.fromEntries(url.searchParams)).toEqual({
      client_id: server.clientId,
      code_challenge: challenge,
      code_challenge_method: "S256",
      nonce: "nonce",
      redirect_uri: callbackUrl,
      response_type: "code",
      scope: "openid email",
      state: "state",
    });
    expect(url.href).not.toContain(secrets.codeVerifier);
    const codeVerifier = `${secrets.codeVerifier}x`;
    await expect(google.identify(await signIn(), { ...secrets, codeVerifier })).rejects.toMatchObject({
      reason: "INVALID_TOKEN",
    });
  });

  test("must send back the state and the nonce", async () => {
    for (const wrong of [{ state: "other" }, { nonce: "other" }]) {
      await expect(google.identify(await signIn(), { ...secrets, ...wrong })).rejects.toMatchObject({
        reason: "INVALID_TOKEN",
      });
    }
  });

  test("redeems a code once, and in time", async () => {
    const response = await signIn();
    await google.identify(response, secrets);
    await expect(google.identify(response, secrets)).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
    server.codeSeconds = 1;
    const late = await signIn();
    await delay(1_100);
    await expect(google.identify(late, secrets)).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
  });

  test("cancelled is forbidden; any other error is the provider's", async () => {
    await expect(google.identify(await signIn({ cancel: true }), secrets)).rejects.toMatchObject({
      reason: "FORBIDDEN",
    });
    const failed = new URL(`${callbackUrl}?state=state&error=temporarily_unavailable&iss=${server.issuer}`);
    await expect(google.identify(failed, secrets)).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
  });

  const hour = 3_600;
  test.each([
    ["of another audience", { aud: "another client" }],
    ["of several audiences, for none of which it was issued", { aud: ["sandgate", "another client"] }],
    ["of another issuer", { iss: "http://127.0.0.1:1" }],
    ["with another nonce", { nonce: "other" }],
    ["that has expired", { exp: Math.floor(Date.now() / 1000) - hour }],
  ])("an ID token %s is refused", async (_, changes) => {
    server.changeIdToken = (claims) => ({ ...claims, ...changes });
    await expect(google.identify(await signIn(), secrets)).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
  });

  test.each(["nonce", "sub", "aud", "iss", "exp"])("an ID token without %s is refused", async (claim) => {
    server.changeIdToken = ({ [claim]: _, ...others }) => others;
    await expect(google.identify(await signIn(), secrets)).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
  });

  test("an ID token that another key signed is refused", async () => {
    const { privateKey } = await generateKeyPair("RS256");
    const forge: Fetch = async (url, options) => {
      const response = await fetchPlainly(url, options);
      if (!url.endsWith("/token")) return response;
      const body: { id_token: string } = JSON.parse(await response.text());
      const [header = "", payload = ""] = body.id_token.split(".");
      const { kid } = JSON.parse(Buffer.from(header, "base64url").toString());
      const claims = JSON.parse(Buffer.from(payload, "base64url").toString());
      const id_token = await new SignJWT(claims).setProtectedHeader({ alg: "RS256", kid }).sign(privateKey);
      return Response.json({ ...body, id_token });
    };
    google = createProvider(settings(), { fetch: forge });
    await expect(google.identify(await signIn(), secrets)).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
  });

  test("a response of another issuer is refused", async () => {
    const response = await signIn();
    expect(response.searchParams.get("iss")).toBe(server.issuer);
    response.searchParams.set("iss", "https://evil.test");
    await expect(google.identify(response, secrets)).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
  });

  test("a new key counts at once", async () => {
    await google.identify(await signIn(), secrets);
    await server.rotateKey();
    expect(await google.identify(await signIn(), secrets)).toMatchObject({ subject: "ann" });
  });

  test("that fails or doesn't answer is an upstream error", async () => {
    const hasty = createProvider(settings(), { timeoutMs: 300 });
    for (const [failure, provider] of [
      [500, google],
      ["no answer", hasty],
    ] as const) {
      const response = await signIn();
      server.failure = failure;
      await expect(provider.identify(response, secrets)).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
      server.failure = undefined;
    }
    server.failure = "no answer";
    await expect(hasty.authorizationUrl(callbackUrl, secrets)).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
  });

  test("a failure's message holds nothing that was sent or received", async () => {
    const response = await signIn();
    server.changeIdToken = (claims) => ({ ...claims, aud: "another client" });
    const failed = await google.identify(response, secrets).catch(String);
    expect(failed).toContain("unexpected JWT claim value");
    for (const secret of ["ann@example.com", response.searchParams.get("code"), server.clientSecret]) {
      expect(failed).not.toContain(secret);
    }
  });
});

const fetchPlainly: Fetch = (url, { body = null, signal = null, ...options }) =>
  fetch(url, { ...options, body, signal });

describe("Microsoft", () => {
  const tenant = "72f988bf-86f1-41af-91ab-2d7cd011db47";
  const settings = {
    SANDGATE_SSO_MICROSOFT_CLIENT_ID: "sandgate",
    SANDGATE_SSO_MICROSOFT_CLIENT_SECRET: "secret",
  };
  const response = new URL("http://127.0.0.1:8080/auth/sso/microsoft/callback?code=code&state=state");

  /** Answers as login.microsoftonline.com does, with these claims in the ID token. */
  async function createServer(claims: Record<string, unknown>, issuer: string): Promise<Fetch> {
    const { privateKey, publicKey } = await generateKeyPair("RS256");
    const key = { ...(await exportJWK(publicKey)), kid: "k", use: "sig" };
    const seconds = Math.floor(Date.now() / 1000);
    return async (url) => {
      const { origin, pathname } = new URL(url);
      const base = `${origin}${pathname.split("/").slice(0, 2).join("/")}`;
      if (pathname.endsWith("/.well-known/openid-configuration")) {
        return Response.json({
          issuer,
          authorization_endpoint: `${base}/oauth2/v2.0/authorize`,
          token_endpoint: `${base}/oauth2/v2.0/token`,
          jwks_uri: `${base}/discovery/v2.0/keys`,
          id_token_signing_alg_values_supported: ["RS256"],
        });
      }
      if (pathname.endsWith("/discovery/v2.0/keys")) return Response.json({ keys: [key] });
      const idToken = await new SignJWT({ aud: "sandgate", sub: "ann", nonce: "nonce", tid: tenant, ...claims })
        .setProtectedHeader({ alg: "RS256", kid: "k" })
        .setIssuedAt(seconds)
        .setExpirationTime(seconds + 60)
        .sign(privateKey);
      return Response.json({ access_token: "a", token_type: "Bearer", id_token: idToken });
    };
  }

  const ofTenant = `https://login.microsoftonline.com/${tenant}/v2.0`;
  const template = "https://login.microsoftonline.com/{tenantid}/v2.0";

  test("of all tenants: each account is its tenant's", async () => {
    const claims = { iss: ofTenant, email: "ann@example.com", xms_edov: true };
    const microsoft = createProvider(settings, { fetch: await createServer(claims, template) });
    expect((await microsoft.authorizationUrl(response.href, secrets)).pathname).toBe("/common/oauth2/v2.0/authorize");
    const account = { issuer: ofTenant, subject: "ann", email: "ann@example.com", emailVerified: true };
    expect(await microsoft.identify(response, secrets)).toEqual(account);
    // Should Microsoft begin to send the parameter, it would be the tenant's too.
    const named = new URL(`${response}&iss=${encodeURIComponent(ofTenant)}`);
    expect(await microsoft.identify(named, secrets)).toEqual(account);
  });

  test("of all tenants: the issuer must be that of the token's tenant", async () => {
    const claims = { iss: ofTenant, tid: "another tenant", email: "ann@example.com", xms_edov: true };
    const microsoft = createProvider(settings, { fetch: await createServer(claims, template) });
    await expect(microsoft.identify(response, secrets)).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
  });

  test.each([
    [{}, false],
    [{ xms_edov: false }, false],
    [{ xms_edov: "0" }, false],
    [{ xms_edov: true }, true],
    [{ xms_edov: "1" }, true],
  ])("an address counts as verified only when Microsoft says so: %o", async (more, emailVerified) => {
    const claims = { iss: ofTenant, email: "ann@example.com", ...more };
    const microsoft = createProvider(settings, { fetch: await createServer(claims, template) });
    expect((await microsoft.identify(response, secrets)).emailVerified).toBe(emailVerified);
  });

  test("a single tenant's addresses can be trusted, those of many can't", async () => {
    const claims = { iss: ofTenant, email: "ann@example.com" };
    const trusting = { ...settings, SANDGATE_SSO_MICROSOFT_TRUST_EMAIL: "true" };
    const single = { ...trusting, SANDGATE_SSO_MICROSOFT_ISSUER: ofTenant };
    const microsoft = createProvider(single, { fetch: await createServer(claims, ofTenant) });
    expect((await microsoft.identify(response, secrets)).emailVerified).toBe(true);
    for (const who of ["common", "organizations", "consumers"]) {
      const env = { ...trusting, SANDGATE_SSO_MICROSOFT_ISSUER: `https://login.microsoftonline.com/${who}/v2.0` };
      expect(() => createProvider(env)).toThrow(/TRUST_EMAIL needs a single tenant's SANDGATE_SSO_MICROSOFT_ISSUER/);
    }
  });
});

describe("GitHub", () => {
  let server: TestGithub;
  let github: SsoProvider;

  beforeEach(async () => {
    server = await startGithub({ callbackUrl });
    github = createProvider({
      SANDGATE_SSO_GITHUB_CLIENT_ID: server.clientId,
      SANDGATE_SSO_GITHUB_CLIENT_SECRET: server.clientSecret,
      SANDGATE_SSO_GITHUB_ISSUER: `${server.url}/`,
      SANDGATE_SSO_GITHUB_API_URL: server.url,
    });
  });
  afterEach(() => server.stop());

  const signIn = async (o: { cancel?: boolean } = {}) =>
    server.signIn((await github.authorizationUrl(callbackUrl, secrets)).href, o);

  test("names the account by its number, with its primary address", async () => {
    server.user.emails = [
      { email: "old@example.com", primary: false, verified: true },
      { email: "ann@example.com", primary: true, verified: true },
    ];
    expect(await github.identify(await signIn(), secrets)).toEqual({
      issuer: server.url,
      subject: "1234567",
      email: "ann@example.com",
      emailVerified: true,
    });
  });

  test("takes neither a primary address that is not verified, nor a verified one that is not primary", async () => {
    server.user.emails = [
      { email: "old@example.com", primary: false, verified: true },
      { email: "ann@example.com", primary: true, verified: false },
    ];
    expect(await github.identify(await signIn(), secrets)).toMatchObject({
      email: "ann@example.com",
      emailVerified: false,
    });
  });

  test("must send back the state, and redeems a code once and with its verifier", async () => {
    await expect(github.identify(await signIn(), { ...secrets, state: "other" })).rejects.toMatchObject({
      reason: "INVALID_TOKEN",
    });
    const codeVerifier = `${secrets.codeVerifier}x`;
    await expect(github.identify(await signIn(), { ...secrets, codeVerifier })).rejects.toMatchObject({
      reason: "INVALID_TOKEN",
    });
    const response = await signIn();
    await github.identify(response, secrets);
    await expect(github.identify(response, secrets)).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
  });

  test("cancelled is forbidden", async () => {
    await expect(github.identify(await signIn({ cancel: true }), secrets)).rejects.toMatchObject({
      reason: "FORBIDDEN",
    });
  });

  test("that is down, or refuses us, is an upstream error", async () => {
    server.apiStatus = 503;
    await expect(github.identify(await signIn(), secrets)).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
    server.clientSecret = "changed";
    const response = await signIn();
    await server.stop();
    await expect(github.identify(response, secrets)).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
    server = await startGithub({ callbackUrl });
  });
});

describe("settings", () => {
  const client = { SANDGATE_SSO_GOOGLE_CLIENT_ID: "id", SANDGATE_SSO_GOOGLE_CLIENT_SECRET: "secret" };
  test.each([
    [{ SANDGATE_SSO_GOOGLE_CLIENT_ID: "id" }, /SANDGATE_SSO_GOOGLE_CLIENT_SECRET is missing/],
    [{ SANDGATE_SSO_GITHUB_CLIENT_SECRET: "s" }, /SANDGATE_SSO_GITHUB_CLIENT_ID is missing/],
    [{ ...client, SANDGATE_REDIRECT_URIS: "https://app.test/#there" }, /"https:\/\/app.test\/#there", which is not/],
    [
      { ...client, SANDGATE_SSO_GOOGLE_ISSUER: "http://accounts.google.com" },
      /_GOOGLE_ISSUER must be an https address/,
    ],
    [{ ...client, SANDGATE_SSO_GOOGLE_ISSUER: "https://a.test/?b" }, /_GOOGLE_ISSUER must be an https address/],
  ])("that can't work are refused: %o", (env, problem) => {
    expect(() => createProvider(env)).toThrow(problem);
  });
});
