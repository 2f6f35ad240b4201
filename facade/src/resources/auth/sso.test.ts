import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { openTestPlatform, type TestPlatform } from "../../test-platform.ts";

const state = "state-of-43-characters";
const cookieName = "__Host-sandgate_sso_state-of-43-";
const redirectUri = "https://app.test/done?from=sso";
const tokens = { accessToken: "a+b", refreshToken: "r", expiresInSeconds: 300, refreshExpiresInSeconds: 1800 };
let platform: TestPlatform;
let started: unknown;
let finished: unknown;
let failure: string | undefined;
let hint = "";

beforeAll(async () => {
  platform = await openTestPlatform({
    env: { SANDGATE_RATE_LIMIT: "0" },
    handlers: {
      identity: {
        startSso({ $typeName: _, ...request }) {
          started = request;
          if (request.provider === "unknown") throw new DomainError("NOT_FOUND", "No such provider.");
          if (request.redirectUri === "https://evil.test/") throw invalid("redirect_uri", "is not configured");
          if (failure !== undefined) return { redirectUri, outcome: { case: "failure", value: failure } };
          const attempt = { authorizationUrl: "https://provider.test/?state=s", state, browserSecret: "secret" };
          return { redirectUri, outcome: { case: "attempt", value: { ...attempt, expiresInSeconds: 600 } } };
        },
        finishSso({ $typeName: _, client, ...request }) {
          finished = { ...request, client: { address: client?.address, userAgent: client?.userAgent } };
          if (request.browserSecret === "") throw new DomainError("INVALID_TOKEN", "The state doesn't fit.");
          if (failure !== undefined) return { redirectUri, outcome: { case: "failure", value: failure }, hint };
          return { redirectUri, outcome: { case: "tokens", value: tokens } };
        },
      },
    },
  });
});
afterAll(() => platform.close());
beforeEach(() => {
  failure = undefined;
  hint = "";
});

const get = (url: string, headers: Record<string, string> = {}) =>
  platform.app.inject({ url, headers: { "x-request-id": "request-1", ...headers } });

test("a sign-in starts with a redirect to the provider, and a cookie that this host alone can set", async () => {
  const response = await get("/auth/sso/google");
  expect(response.statusCode).toBe(302);
  expect(response.headers).toMatchObject({
    location: "https://provider.test/?state=s",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-request-id": "request-1",
    "set-cookie": `${cookieName}=secret; Max-Age=600; Path=/; Secure; HttpOnly; SameSite=Lax`,
  });
  expect(started).toEqual({ provider: "google" });
  await get(`/auth/sso/github?redirect_uri=${encodeURIComponent(redirectUri)}`);
  expect(started).toEqual({ provider: "github", redirectUri });
});

test("a sign-in with a wrong address or an unknown provider doesn't start", async () => {
  const wrong = await get("/auth/sso/google?redirect_uri=https://evil.test/");
  expect([wrong.statusCode, wrong.json().error.details]).toEqual([
    422,
    [{ field: "query.redirect_uri", issue: "is not configured" }],
  ]);
  expect((await get("/auth/sso/google?redirect_uri=a&redirect_uri=b")).statusCode).toBe(422);
  expect((await get("/auth/sso/unknown")).json().error.code).toBe("not_found");
});

test("a sign-in ends with the tokens in the fragment, and without its cookie", async () => {
  const response = await get(`/auth/sso/google/callback?state=${state}&code=c&iss=https://provider.test`, {
    cookie: `other=1; ${cookieName}=secret; sandgate_sso_another=2`,
    "user-agent": "Firefox",
  });
  expect(response.statusCode).toBe(302);
  expect(response.headers).toMatchObject({
    location: `${redirectUri}#access_token=a%2Bb&refresh_token=r&token_type=Bearer&expires_in=300&refresh_expires_in=1800`,
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "set-cookie": `${cookieName}=; Max-Age=0; Path=/; Secure; HttpOnly; SameSite=Lax`,
  });
  expect(response.body).toBe("");
  expect(finished).toEqual({
    provider: "google",
    state,
    browserSecret: "secret",
    code: "c",
    iss: "https://provider.test",
    client: { address: "127.0.0.1", userAgent: "Firefox" },
  });
});

test("a failure reaches the application as a code, with the request's id", async () => {
  const cookie = `${cookieName}=secret`;
  for (const [reason, code] of [
    ["FORBIDDEN", "forbidden"],
    ["EMAIL_NOT_VERIFIED", "email_not_verified"],
    // Of a newer version.
    ["SOMETHING_NEW", "internal_error"],
  ]) {
    failure = reason;
    const location = `${redirectUri}#error=${code}&request_id=request-1`;
    const ended = await get(`/auth/sso/google/callback?state=${state}&error=access_denied`, { cookie });
    expect([ended.statusCode, ended.headers.location]).toEqual([302, location]);
    const startedFailed = await get("/auth/sso/google");
    expect([startedFailed.statusCode, startedFailed.headers.location]).toEqual([302, location]);
    expect(startedFailed.headers["set-cookie"]).toBeUndefined();
  }
  expect(finished).toMatchObject({ error: "access_denied" });
  [failure, hint] = ["FORBIDDEN", "Sign in & retry."];
  const { headers } = await get(`/auth/sso/google/callback?state=${state}&code=c`, { cookie });
  expect(headers.location).toBe(`${redirectUri}#error=forbidden&request_id=request-1&hint=Sign+in+%26+retry.`);
});

test.each([
  ["without a cookie", `state=${state}`, ""],
  ["with the cookie of another attempt", `state=${state}`, "__Host-sandgate_sso_another=secret"],
  ["with the cookie that another host of the domain can set", `state=${state}`, "sandgate_sso_state-of-43-=secret"],
  ["with a cookie whose name only ends alike", `state=${state}`, `x${cookieName}=secret`],
  ["without a state", "code=c", `${cookieName}=secret`],
])("a callback %s is refused without a redirect", async (_, query, cookie) => {
  const response = await get(`/auth/sso/google/callback?${query}`, { cookie });
  expect([response.statusCode, response.json().error.code]).toEqual([401, "invalid_token"]);
  expect(response.headers.location).toBeUndefined();
});

test("starts count as sign-ins of the address", async () => {
  const answers: number[] = [];
  for (let i = 0; i < 11; i++) {
    answers.push((await platform.app.inject({ url: "/auth/sso/google", remoteAddress: "192.0.2.7" })).statusCode);
  }
  expect(answers).toEqual([...Array(10).fill(302), 429]);
});
