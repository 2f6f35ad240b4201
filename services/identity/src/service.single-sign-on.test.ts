import { mkdir, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { type Client, createClient } from "@connectrpc/connect";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { createInMemoryNetwork } from "@sandgate/kit/rpc/clients";
import { asFacade } from "@sandgate/kit/rpc/context";
import { openKeyring } from "@sandgate/kit/storage/sealing";
import { type FinishSsoRequest, IdentityService, type SsoAttempt } from "@sandgate/proto/identity/v1/identity";
import { startGithub, type TestGithub } from "@sandgate/test-support/github";
import { startOpenIdProvider, type TestOpenIdProvider } from "@sandgate/test-support/open-id-provider";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { decodeJwt } from "jose";
import { Secret, TOTP } from "otpauth";
import { afterEach, describe, expect, vi } from "vitest";
import { defineIdentityService } from "./service.ts";

const publicUrl = "http://127.0.0.1:8080/api";
const redirectUris = ["https://app.test/done", "https://app.test/other"];
const password = "correct horse battery";
const username = "ann@example.com";
const logLines: string[] = [];
let folder: string;
let now: number;
let server: TestOpenIdProvider;
let github: TestGithub;
let identity: Client<typeof IdentityService>;
let close: () => Promise<void>;

async function open(env: NodeJS.ProcessEnv = {}): Promise<void> {
  const metrics = createMetrics();
  const logger = createLogger({ service: "identity" }, { write: (line: string) => void logLines.push(line) });
  const bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics });
  const network = await createInMemoryNetwork();
  const definition = defineIdentityService(() => new Date(now));
  const settings = definition.readSettings({
    SANDGATE_DATA: folder,
    SANDGATE_PUBLIC_URL: publicUrl,
    SANDGATE_REDIRECT_URIS: redirectUris.join(", "),
    SANDGATE_SSO_GOOGLE_CLIENT_ID: server.clientId,
    SANDGATE_SSO_GOOGLE_CLIENT_SECRET: server.clientSecret,
    SANDGATE_SSO_GOOGLE_ISSUER: server.issuer,
    SANDGATE_SSO_GITHUB_CLIENT_ID: github.clientId,
    SANDGATE_SSO_GITHUB_CLIENT_SECRET: github.clientSecret,
    SANDGATE_SSO_GITHUB_ISSUER: github.url,
    SANDGATE_SSO_GITHUB_API_URL: github.url,
    ...env,
  });
  const service = await definition.open(
    {
      database: { kind: "sqlite", file: join(folder, "identity.sqlite") },
      bus,
      transport: (name) => network.transport("identity", name),
      keyring: await openKeyring({ file: join(folder, "keys.json"), create: true }),
      logger,
      metrics,
    },
    settings,
  );
  network.serve("identity", { routes: service.routes, logger, metrics });
  await service.start();
  identity = createClient(IdentityService, network.transport("facade", "identity"));
  close = async () => {
    await service.drain();
    await service.close();
    await bus.close();
  };
}

test.beforeEach(async ({ folder: own }) => {
  folder = own;
  now = Date.now();
  // The providers run in this process: when it stands still, so do they.
  vi.spyOn(AbortSignal, "timeout").mockImplementation(() => new AbortController().signal);
  logLines.length = 0;
  server = await startOpenIdProvider({ callbackUrl: `${publicUrl}/auth/sso/google/callback` });
  github = await startGithub({ callbackUrl: `${publicUrl}/auth/sso/github/callback` });
  await open();
});
afterEach(async () => {
  await close();
  await server.stop();
  await github.stop();
  vi.restoreAllMocks();
});

const reopen = async (env: NodeJS.ProcessEnv) => {
  await close();
  await open(env);
};
const nobody = () => asFacade({ requestId: "request-1" });

async function start(provider = "google", redirectUri?: string): Promise<SsoAttempt> {
  const { outcome } = await identity.startSso({ provider, ...(redirectUri && { redirectUri }) }, nobody());
  if (outcome.case !== "attempt") throw new Error(`The sign-in didn't start: ${outcome.value}.`);
  return outcome.value;
}

type Response = Partial<Pick<FinishSsoRequest, "provider" | "state" | "code" | "iss" | "error" | "browserSecret">>;

/** Signs in at the provider, and returns what the browser then brings to the callback. */
async function visit(attempt: SsoAttempt, o: { provider?: "google" | "github"; cancel?: boolean } = {}) {
  const { provider = "google" } = o;
  const callback = await (provider === "google" ? server : github).signIn(attempt.authorizationUrl, o);
  expect(`${callback.origin}${callback.pathname}`).toBe(`${publicUrl}/auth/sso/${provider}/callback`);
  const parameters: Response = Object.fromEntries(callback.searchParams);
  return { ...parameters, provider, browserSecret: attempt.browserSecret };
}

/** The reason of the failure, or the user who is signed in. */
async function finish(
  response: Response,
): Promise<{ redirectUri: string; failure?: string; hint?: string; userId?: string }> {
  const client = { address: "192.0.2.1", userAgent: "Firefox" };
  const { redirectUri, outcome, hint } = await identity.finishSso({ ...response, client }, nobody());
  if (outcome.case !== "tokens") return { redirectUri, failure: String(outcome.value), ...(hint && { hint }) };
  return { redirectUri, userId: String(decodeJwt(outcome.value.accessToken).sub) };
}

const signIn = async (provider: "google" | "github" = "google") =>
  finish(await visit(await start(provider), { provider }));

async function mailedTokens(count: number): Promise<string[]> {
  const names = await until(async () => {
    const found = (await readdir(join(folder, "mail")).catch(() => [])).filter((name) => name.endsWith(".eml"));
    expect(found.length).toBeGreaterThanOrEqual(count);
    return found.toSorted();
  });
  const texts = await Promise.all(names.map((name) => readFile(join(folder, "mail", name), "utf8")));
  return texts.map((text) => /token=([A-Za-z0-9_-]+)/.exec(text)?.[1] ?? "");
}

const userOf = async (name: string) => (await identity.batchGetUsers({ usernames: [name] }, nobody())).users[0];

describe("a sign-in by a provider", () => {
  test("creates a verified user at first, and finds the same one later", async () => {
    const first = await signIn();
    expect(first.redirectUri).toBe(redirectUris[0]);
    expect(await userOf(username)).toMatchObject({ id: first.userId, verified: true, operator: false });
    server.account = { sub: "ann", email: "new@example.com", email_verified: false };
    expect(await signIn()).toMatchObject({
      failure: "EMAIL_NOT_VERIFIED",
      hint: "Confirm the address at the provider, then sign in again.",
    });
    server.account.email_verified = true;
    expect(await signIn()).toEqual(first);
    expect(await userOf("new@example.com")).toBeUndefined();
  });

  test("starts a session like any other", async () => {
    const attempt = await start();
    const { outcome } = await identity.finishSso(
      { ...(await visit(attempt)), client: { address: "192.0.2.1", userAgent: "Firefox" } },
      nobody(),
    );
    if (outcome.case !== "tokens") throw new Error(`The sign-in failed: ${outcome.value}.`);
    expect(outcome.value).toMatchObject({ expiresInSeconds: 300, refreshExpiresInSeconds: 1800 });
    const id = String(decodeJwt(outcome.value.accessToken).sub);
    const user = { id, credential: "session", credentialId: "none", operator: false } as const;
    const { sessions } = await identity.listSessions({}, asFacade({ requestId: newId(), user }));
    expect(sessions).toMatchObject([{ address: "192.0.2.1", userAgent: "Firefox" }]);
    const { tokens } = await identity.refreshSession({ refreshToken: outcome.value.refreshToken }, nobody());
    expect(decodeJwt(tokens?.accessToken ?? "").sub).toBe(id);
  });

  test("by several providers that have verified the same address is one user's", async () => {
    const { userId } = await signIn("google");
    expect(await signIn("github")).toMatchObject({ userId });
  });

  test("ends at the address that was asked for, which must be exactly a configured one", async () => {
    expect(await finish(await visit(await start("google", redirectUris[1])))).toMatchObject({
      redirectUri: redirectUris[1],
    });
    const near = ["https://app.test/done/", "https://app.test/don", "https://app.test/Done", "http://app.test/done"];
    // The dashboard's, without being named.
    const dashboard = `${publicUrl}/dashboard/sign-in`;
    expect(await finish(await visit(await start("google", dashboard)))).toMatchObject({ redirectUri: dashboard });
    for (const redirectUri of [...near, "https://app.test/done?", "https://app.test/done#", " https://app.test/done"]) {
      await expect(identity.startSso({ provider: "google", redirectUri }, nobody())).rejects.toMatchObject({
        reason: "VALIDATION_ERROR",
        violations: [{ field: "redirect_uri" }],
      });
    }
  });

  test("by a provider that isn't set up is not found", async () => {
    for (const provider of ["microsoft", "gitlab", "", "__proto__"]) {
      await expect(identity.startSso({ provider }, nobody())).rejects.toMatchObject({ reason: "NOT_FOUND" });
      await expect(identity.finishSso({ provider }, nobody())).rejects.toMatchObject({ reason: "NOT_FOUND" });
    }
  });
});

describe("an account without a password", () => {
  /** Signs in, and returns how calls are made with the session. */
  async function startSession() {
    const { outcome } = await identity.finishSso(await visit(await start()), nobody());
    if (outcome.case !== "tokens") throw new Error(`The sign-in failed: ${outcome.value}.`);
    const { sub, sid, ...claims } = decodeJwt(outcome.value.accessToken);
    const user = { id: String(sub), credential: "session" as const, credentialId: String(sid), operator: false };
    return { claims, as: () => asFacade({ requestId: newId(), user }) };
  }
  const codeOf = (secret: string) => TOTP.generate({ secret: Secret.fromBase32(secret), timestamp: now });
  const stale = { reason: "INVALID_CREDENTIALS", message: "This requires a sign-in within the last 5 minutes." };

  test("gets a second factor, and is deleted, by who has signed in within the last five minutes", async () => {
    const old = await startSession();
    now += 5 * 60_000;
    await expect(identity.createSecondFactor({}, old.as())).rejects.toMatchObject(stale);
    await expect(identity.deleteAccount({}, old.as())).rejects.toMatchObject(stale);
    const { as } = await startSession();
    const { secret } = await identity.createSecondFactor({}, as());
    await identity.confirmSecondFactor({ otp: codeOf(secret) }, as());
    now += 60_000;
    await expect(identity.deleteSecondFactor({ otp: codeOf(secret) }, old.as())).rejects.toMatchObject(stale);
    await identity.deleteSecondFactor({ otp: codeOf(secret) }, as());
    await identity.deleteAccount({}, as());
    expect(await userOf(username)).toBeUndefined();
  });

  test("is asked for no second factor by us, and the sign-in counts as none", async () => {
    folder = join(folder, "operators");
    await mkdir(folder);
    await reopen({
      SANDGATE_ADMIN_USERNAME: username,
      SANDGATE_ADMIN_PASSWORD: password,
      SANDGATE_OPERATOR_SECOND_FACTOR: "required",
    });
    expect((await startSession()).claims).toMatchObject({ op: false, op_needs: "second_factor" });
    const { as } = await startSession();
    const { secret } = await identity.createSecondFactor({ password }, as());
    await identity.confirmSecondFactor({ otp: codeOf(secret) }, as());
    expect((await startSession()).claims).toMatchObject({ op: false, op_needs: "second_factor" });
    now += 60_000;
    const { tokens } = await identity.signIn({ username, password, otp: codeOf(secret) }, nobody());
    expect(decodeJwt(tokens?.accessToken ?? "")).toMatchObject({ op: true });
  });
});

describe("a state", () => {
  const refused = { reason: "INVALID_TOKEN" };

  test("is good once, whatever came of it", async () => {
    const response = await visit(await start());
    const ended = await Promise.allSettled([1, 2, 3].map(() => finish(response)));
    expect(ended.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    await expect(finish(response)).rejects.toMatchObject(refused);
    const cancelled = await visit(await start(), { cancel: true });
    expect(await finish(cancelled)).toMatchObject({ failure: "FORBIDDEN" });
    await expect(finish(cancelled)).rejects.toMatchObject(refused);
  });

  test("is good in the browser that it was given to, and at its provider", async () => {
    const [own, another] = [await start(), await start()];
    const response = await visit(own);
    for (const wrong of [
      { browserSecret: another.browserSecret },
      { browserSecret: "" },
      { provider: "github" },
      { state: "" },
      { state: another.state },
    ]) {
      await expect(finish({ ...response, ...wrong })).rejects.toMatchObject(refused);
    }
    expect((await finish(response)).userId).toBeDefined();
  });

  test("is good for ten minutes", async () => {
    const [attempt, late] = [await start(), await start()];
    now += 599_000;
    expect((await finish(await visit(attempt))).userId).toBeDefined();
    now += 1_000;
    await expect(finish(await visit(late))).rejects.toMatchObject(refused);
  });

  test("brings no code of another attempt", async () => {
    const [own, another] = [await start(), await start()];
    const [response, foreign] = [await visit(own), await visit(another)];
    expect(await finish({ ...response, code: foreign.code ?? "" })).toMatchObject({
      failure: "INVALID_TOKEN",
    });
  });

  test("several under way at once, in one browser or many, all end well", async () => {
    const attempts = await Promise.all([1, 2, 3].map(() => start()));
    const responses = await Promise.all(attempts.map((attempt) => visit(attempt)));
    const ended = await Promise.all(responses.map(finish));
    expect(new Set(ended.map(({ userId }) => userId)).size).toBe(1);
    expect(ended[0]?.userId).toBeDefined();
  });
});

describe("an account with a password", () => {
  const register = (given = password) => identity.register({ username, password: given }, nobody());
  const passwordSignIn = () => identity.signIn({ username, password }, nobody());

  test("that is verified is linked, and keeps its password", async () => {
    await register();
    const [token = ""] = await mailedTokens(1);
    await identity.verifyEmail({ token, password }, nobody());
    const user = await userOf(username);
    expect(await signIn()).toMatchObject({ userId: user?.id });
    await passwordSignIn();
  });

  test("that was never verified is linked and loses it, and its links lead nowhere", async () => {
    // Whoever registers a stranger's address waits for its owner in vain.
    await register();
    const [token = ""] = await mailedTokens(1);
    const user = await userOf(username);
    expect(await signIn()).toMatchObject({ userId: user?.id });
    await expect(passwordSignIn()).rejects.toMatchObject({ reason: "INVALID_CREDENTIALS" });
    await expect(identity.verifyEmail({ token, password }, nobody())).rejects.toMatchObject({
      reason: "INVALID_TOKEN",
    });
    await expect(passwordSignIn()).rejects.toMatchObject({ reason: "INVALID_CREDENTIALS" });
  });

  test("is told of the link by mail, once", async () => {
    await register();
    await mailedTokens(1);
    await signIn();
    await signIn();
    const names = await until(async () => {
      const found = await readdir(join(folder, "mail"));
      expect(found).toHaveLength(2);
      return found.toSorted();
    });
    const text = await readFile(join(folder, "mail", names[1] ?? ""), "utf8");
    expect(text).toMatch(/^To: ann@example.com$/m);
    expect(text).toContain(`an account\nat ${new URL(server.issuer).host} for the first time`);
    expect(text).not.toContain("token=");
  });

  test("can be given one later, by a mailed link", async () => {
    await signIn();
    await identity.requestPasswordReset({ username }, nobody());
    const [token = ""] = await mailedTokens(1);
    await identity.resetPassword({ token, password }, nobody());
    await passwordSignIn();
  });

  test("isn't linked by an address that the provider hasn't verified", async () => {
    server.account = { sub: "ann", email: username, email_verified: false };
    expect(await signIn()).toMatchObject({ redirectUri: redirectUris[0], failure: "EMAIL_NOT_VERIFIED" });
    await register();
    expect(await signIn()).toMatchObject({ failure: "EMAIL_NOT_VERIFIED" });
    expect((await userOf(username))?.verified).toBe(false);
  });
});

describe("taking an account back", () => {
  const next = "another long passphrase";
  const home = { address: "192.0.2.1", userAgent: "Firefox" };
  const mailTexts = async () => {
    const names = (await readdir(join(folder, "mail"))).filter((name) => name.endsWith(".eml")).toSorted();
    return Promise.all(names.map((name) => readFile(join(folder, "mail", name), "utf8")));
  };

  /** A user with a password, and how they call with a session of theirs. */
  async function openAccount() {
    await identity.register({ username, password }, nobody());
    const [token = ""] = await mailedTokens(1);
    await identity.verifyEmail({ token, password }, nobody());
    return signInHere();
  }

  async function signInHere(given = password, o: { otp?: string; client?: typeof home } = {}) {
    const { client = home, ...code } = o;
    const { tokens } = await identity.signIn({ username, password: given, client, ...code }, nobody());
    const { sub, sid } = decodeJwt(tokens?.accessToken ?? "");
    const user = { id: String(sub), credential: "session" as const, credentialId: String(sid), operator: false };
    return () => asFacade({ requestId: newId(), user });
  }

  test("a reset, its answer and its mail name the links that remain; a removed one doesn't come back by itself", async () => {
    const stale = await openAccount();
    await signIn("github");
    await identity.requestPasswordReset({ username }, nobody());
    const reset = (await mailedTokens(3)).at(-1) ?? "";
    const { identities } = await identity.resetPassword({ token: reset, password: next }, nobody());
    const link = { provider: "github", username };
    expect(identities).toMatchObject([link]);
    await until(async () => expect((await mailTexts()).at(-1)).toContain(`\n- github: ${username}\n`));

    const thief = await visit(await start("github"), { provider: "github" });
    const client = { address: "198.51.100.1", userAgent: "curl" };
    const { outcome } = await identity.finishSso({ ...thief, client }, nobody());
    if (outcome.case !== "tokens") throw new Error("The link doesn't sign in.");
    const own = await signInHere(next);
    const listed = (await identity.listIdentities({}, own())).identities;
    expect(listed).toMatchObject([{ ...link, id: identities[0]?.id }]);
    await expect(identity.deleteIdentity({ identityId: newId() }, own())).rejects.toMatchObject({
      reason: "NOT_FOUND",
    });
    await identity.deleteIdentity({ identityId: identities[0]?.id ?? "" }, own());
    expect((await identity.listIdentities({}, stale())).identities).toEqual([]);
    await expect(identity.refreshSession({ refreshToken: outcome.value.refreshToken }, nobody())).rejects.toMatchObject(
      { reason: "INVALID_TOKEN" },
    );
    await until(async () => expect((await mailTexts()).at(-1)).toContain("can no longer sign in"));

    now += 5 * 60_000;
    const refused = { failure: "FORBIDDEN", hint: expect.stringContaining("Sign in with your password") };
    expect(await signIn("github")).toMatchObject(refused);
    await signInHere(next, { client });
    expect(await signIn("github")).toMatchObject(refused);
    await signInHere(next);
    expect((await signIn("github")).userId).toBeDefined();
  });

  test("a provider is linked to an account with a second factor only after a recent sign-in from there", async () => {
    const own = await openAccount();
    const { secret } = await identity.createSecondFactor({ password }, own());
    const codeAt = (timestamp: number) => TOTP.generate({ secret: Secret.fromBase32(secret), timestamp });
    await identity.confirmSecondFactor({ otp: codeAt(now) }, own());
    now += 5 * 60_000;
    expect(await signIn("github")).toMatchObject({ failure: "FORBIDDEN" });
    expect((await identity.listIdentities({}, own())).identities).toEqual([]);
    await signInHere(password, { otp: codeAt(now) });
    expect((await signIn("github")).userId).toBeDefined();
  });

  test("the only way to sign in is kept", async () => {
    const { userId = "" } = await signIn();
    const user = { id: userId, credential: "session", credentialId: newId(), operator: false } as const;
    const own = () => asFacade({ requestId: newId(), user });
    const [link] = (await identity.listIdentities({}, own())).identities;
    await expect(identity.deleteIdentity({ identityId: link?.id ?? "" }, own())).rejects.toMatchObject({
      reason: "CONFLICT",
      hint: expect.stringContaining("POST /auth/password/forgot"),
    });
    expect(await signIn()).toMatchObject({ userId });
  });
});

test("while registration is closed, accounts are linked but none is created", async () => {
  await identity.register({ username, password }, nobody());
  await reopen({ SANDGATE_REGISTRATION: "closed" });
  expect((await signIn()).userId).toBeDefined();
  server.account = { sub: "bob", email: "bob@example.com", email_verified: true };
  expect(await signIn()).toMatchObject({ failure: "FORBIDDEN", hint: expect.stringContaining("Ask an operator") });
  expect(await userOf("bob@example.com")).toBeUndefined();
});

test.each([
  ["optional", true],
  ["required", false],
])("an operator has the rights of one where a second factor is %s: %s", async (setting, operator) => {
  await reopen({ SANDGATE_OPERATOR_SECOND_FACTOR: setting });
  server.account = { sub: "admin", email: "admin@localhost", email_verified: true };
  const client = { address: "", userAgent: "" };
  const { outcome } = await identity.finishSso({ ...(await visit(await start())), client }, nobody());
  if (outcome.case !== "tokens") throw new Error(`The sign-in failed: ${outcome.value}.`);
  expect(decodeJwt(outcome.value.accessToken).op).toBe(operator);
});

test("a disabled user is forbidden", async () => {
  const { userId = "" } = await signIn();
  const operator = { id: newId(), credential: "session", credentialId: newId(), operator: true } as const;
  await identity.setUserDisabled({ userId, disabled: true }, asFacade({ requestId: newId(), user: operator }));
  expect(await signIn()).toMatchObject({ failure: "FORBIDDEN" });
});

test("a deleted user's identity is free for a new account", async () => {
  const { userId = "" } = await signIn();
  const operator = { id: newId(), credential: "session", credentialId: newId(), operator: true } as const;
  await identity.deleteUser({ userId }, asFacade({ requestId: newId(), user: operator }));
  const again = await signIn();
  expect(again.userId).toBeDefined();
  expect(again.userId).not.toBe(userId);
});

test("cancelled at the provider is forbidden", async () => {
  for (const provider of ["google", "github"] as const) {
    const cancelled = await visit(await start(provider), { provider, cancel: true });
    expect(await finish(cancelled)).toEqual({ redirectUri: redirectUris[0], failure: "FORBIDDEN" });
  }
});

test("a provider that fails sends the browser on to the application, and the log says why", async () => {
  const response = await visit(await start());
  server.failure = 503;
  expect(await finish(response)).toEqual({ redirectUri: redirectUris[0], failure: "UPSTREAM_ERROR" });
  await reopen({});
  const { redirectUri, outcome } = await identity.startSso({ provider: "google" }, nobody());
  expect([redirectUri, outcome]).toEqual([redirectUris[0], { case: "failure", value: "UPSTREAM_ERROR" }]);
  const entries = logLines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === "single sign-on failed");
  expect(entries).toMatchObject([
    {
      request_id: "request-1",
      provider: "google",
      reason: "UPSTREAM_ERROR",
      failure: expect.stringContaining("unexpected"),
    },
    { request_id: "request-1", provider: "google", reason: "UPSTREAM_ERROR" },
  ]);
});

test("no secret of a sign-in reaches the log", async () => {
  const attempt = await start();
  const response = await visit(attempt);
  server.changeIdToken = (claims) => ({ ...claims, aud: "another client" });
  expect(await finish(response)).toMatchObject({ failure: "INVALID_TOKEN" });
  const log = logLines.join("\n");
  expect(log).toContain("unexpected JWT claim value");
  for (const secret of [attempt.state, attempt.browserSecret, response.code, username, server.clientSecret]) {
    expect(log).not.toContain(secret);
  }
});
