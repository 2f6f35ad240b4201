import { hash } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { brotliCompressSync } from "node:zlib";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { openTestPlatform, type TestPlatform } from "../test-platform.ts";

const script = "console.log(1)";
const compressed = brotliCompressSync(script);
const own = "https://api.test";
let platform: TestPlatform;
let folder: string;
let removeFolder: () => Promise<void>;
const refreshed: string[] = [];
const signedOut: string[] = [];

const tokensAfter = (refreshToken: string) => ({
  accessToken: "a",
  refreshToken,
  expiresInSeconds: 300,
  refreshExpiresInSeconds: 1800,
});

beforeAll(async () => {
  ({ path: folder, remove: removeFolder } = await createTempFolder());
  platform = await openTestPlatform({
    env: { SANDGATE_RATE_LIMIT: "0", SANDGATE_SIGNIN_RATE_LIMIT: "0" },
    dashboardFolder: folder,
    handlers: {
      identity: {
        getSignInOptions: () => ({ providers: ["github"], registrationOpen: false, recaptcha: true }),
        signIn: ({ otp }) => {
          if (otp === "wrong") throw new DomainError("INVALID_CREDENTIALS", "Wrong.");
          return { tokens: tokensAfter("first") };
        },
        refreshSession: ({ refreshToken }) => {
          refreshed.push(refreshToken);
          if (refreshToken === "ended") throw new DomainError("INVALID_TOKEN", "It has ended.");
          if (refreshToken === "unlucky") throw new DomainError("UPSTREAM_ERROR", "The database is away.");
          return { tokens: tokensAfter("second") };
        },
        signOut: ({ refreshToken }) => {
          signedOut.push(refreshToken);
          return {};
        },
      },
    },
  });
});
afterAll(async () => {
  await platform.close();
  await removeFolder();
});
beforeEach(() => {
  refreshed.length = 0;
  signedOut.length = 0;
});

const get = (url: string, headers: Record<string, string> = {}) => platform.app.inject({ url, headers });
const toBrowser = { accept: "text/html,application/xhtml+xml" };

test("what isn't built is a 404 that says what builds it, and / leads to the reference", async () => {
  const missing = await get("/dashboard/sandboxes");
  expect(missing.statusCode).toBe(404);
  expect(missing.json().error).toMatchObject({
    code: "not_found",
    message: "The dashboard is not built.",
    hint: expect.stringContaining("npm run build:dashboard"),
  });
  expect((await get("/", toBrowser)).headers.location).toBe("/v/docs");
});

describe("once it is built", () => {
  beforeAll(async () => {
    await mkdir(join(folder, "assets"));
    await writeFile(join(folder, "index.html"), `<!doctype html><base href="/dashboard/" /><script>${script}</script>`);
    await writeFile(join(folder, "secret"), "not below assets");
    await writeFile(join(folder, "assets/index-abc.js"), script);
    await writeFile(join(folder, "assets/index-abc.js.br"), compressed);
  });

  test("every address below it is its first page, which loads everything from where the API is reached", async () => {
    for (const url of ["/dashboard", "/dashboard/", "/dashboard/sandboxes/a-name?x=1"]) {
      const page = await get(url);
      expect([page.statusCode, page.body]).toEqual([
        200,
        `<!doctype html><base href="/v/dashboard/" /><script>${script}</script>`,
      ]);
      expect(page.headers).toMatchObject({ "content-type": "text/html; charset=utf-8", "cache-control": "no-cache" });
    }
  });

  test("browsers run its own scripts alone, and make no markup of texts", async () => {
    const policy = String((await get("/dashboard/")).headers["content-security-policy"]);
    const digest = hash("sha256", script, "base64");
    expect(policy).toContain(`default-src 'none'; script-src 'self' 'sha256-${digest}';`);
    expect(policy).toContain("connect-src 'self';");
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).toContain("require-trusted-types-for 'script'; trusted-types 'none'");
  });

  test("a page that a browser has is not sent again", async () => {
    const { etag } = (await get("/dashboard/")).headers;
    const again = await get("/dashboard/sandboxes", { "if-none-match": `W/${etag}` });
    expect([again.statusCode, again.body]).toEqual([304, ""]);
    expect((await get("/dashboard/", { "if-none-match": '"other"' })).statusCode).toBe(200);
  });

  test("scripts are kept for a year, and come compressed to those who take that", async () => {
    const plain = await get("/dashboard/assets/index-abc.js");
    expect([plain.statusCode, plain.body]).toEqual([200, script]);
    expect(plain.headers).toMatchObject({
      "cache-control": "public, max-age=31536000, immutable",
      "content-type": expect.stringContaining("javascript"),
      "x-content-type-options": "nosniff",
      etag: expect.any(String),
    });
    const { headers, rawPayload } = await get("/dashboard/assets/index-abc.js", { "accept-encoding": "gzip, br" });
    expect(headers).toMatchObject({ "content-encoding": "br", vary: "accept-encoding" });
    expect(rawPayload).toEqual(compressed);
  });

  test.each([
    { range: "bytes=9999-" },
    { "if-match": '"other"' },
    { "if-unmodified-since": "Mon, 01 Jan 1990 00:00:00 GMT" },
  ])("scripts come whole, whatever part or version is asked for: %o", async (headers) => {
    const whole = await get("/dashboard/assets/index-abc.js", headers);
    expect([whole.statusCode, whole.body]).toEqual([200, script]);
  });

  test.each(["index-abd.js", "..%2fsecret", ".%2e%2fsecret", "a%00b.js"])("an asset %s is not found", async (name) => {
    const missing = await get(`/dashboard/assets/${name}`);
    expect([missing.statusCode, missing.json().error.code]).toEqual([404, "not_found"]);
  });

  test("/ leads browsers there, and programs to the reference", async () => {
    const led = await get("/", toBrowser);
    expect([led.statusCode, led.headers.location, led.headers.vary]).toEqual([302, "/v/dashboard/", "Accept"]);
    expect((await get("/", { accept: "*/*" })).headers.location).toBe("/v/docs");
  });

  test("a setting turns all of it off", async () => {
    const off = await openTestPlatform({ env: { SANDGATE_DASHBOARD: "off" }, dashboardFolder: folder });
    for (const url of ["/dashboard/", "/dashboard/assets/index-abc.js"]) {
      expect((await off.app.inject({ url })).statusCode).toBe(404);
    }
    const session = await off.app.inject({
      method: "POST",
      url: "/dashboard/session/refresh",
      headers: { origin: own },
    });
    expect(session.statusCode).toBe(404);
    expect((await off.app.inject({ url: "/", headers: toBrowser })).headers.location).toBe("/v/docs");
    await off.close();
  });
});

describe("its session", () => {
  const send = (method: "POST" | "PUT" | "DELETE", path: string, o: { body?: object; headers?: object } = {}) =>
    platform.app.inject({
      method,
      url: `/dashboard/session${path}`,
      headers: { origin: own, host: "api.test", ...o.headers },
      ...(o.body && { payload: o.body }),
    });
  const credentials = { username: "ada@example.test", password: "a long passphrase" };
  const cookie = (value: string, seconds: number) =>
    `__Host-sandgate-session=${value}; Max-Age=${seconds}; Path=/; Secure; HttpOnly; SameSite=Strict`;
  const having = (value: string) => ({ headers: { cookie: `other=1; __Host-sandgate-session=${value}` } });

  test("says which ways to sign in there are, and where providers send the browser", async () => {
    expect((await get("/dashboard/session")).json()).toEqual({
      providers: ["github"],
      registration_open: false,
      recaptcha: true,
      redirect_uri: "https://api.test/v/dashboard/sign-in",
    });
  });

  test("begins with a cookie that scripts can't read, and shows them the access token alone", async () => {
    const response = await send("POST", "", { body: credentials });
    expect([response.statusCode, response.json()]).toEqual([200, { access_token: "a", expires_in: 300 }]);
    expect(response.headers["set-cookie"]).toBe(cookie("first", 1800));
    expect(response.headers["cache-control"]).toBe("no-store");
  });

  test("begins with a refresh token of single sign-on, which is replaced", async () => {
    const response = await send("PUT", "", { body: { refresh_token: "from-sso" } });
    expect(response.json()).toEqual({ access_token: "a", expires_in: 300 });
    expect(response.headers["set-cookie"]).toBe(cookie("second", 1800));
    expect((await send("PUT", "", { body: { refresh_token: "ended" } })).json().error.code).toBe("invalid_token");
  });

  test("goes on by its cookie, which is replaced each time", async () => {
    const response = await send("POST", "/refresh", having("first"));
    expect(response.json()).toEqual({ access_token: "a", expires_in: 300 });
    expect([refreshed, response.headers["set-cookie"]]).toEqual([["first"], cookie("second", 1800)]);
  });

  test("isn't there without a cookie, and no more once it has ended", async () => {
    const none = await send("POST", "/refresh");
    expect([none.statusCode, none.headers["set-cookie"], refreshed]).toEqual([204, undefined, []]);
    const ended = await send("POST", "/refresh", having("ended"));
    expect([ended.statusCode, ended.headers["set-cookie"]]).toEqual([204, cookie("", 0)]);
  });

  test("is kept when the services can't be reached", async () => {
    const failed = await send("POST", "/refresh", having("unlucky"));
    expect([failed.statusCode, failed.headers["set-cookie"]]).toEqual([502, undefined]);
  });

  test("ends for all with the sign-out", async () => {
    const response = await send("DELETE", "", having("first"));
    expect([response.statusCode, response.headers["set-cookie"], signedOut]).toEqual([204, cookie("", 0), ["first"]]);
  });

  test.each([
    ["POST", ""],
    ["PUT", ""],
    ["POST", "/refresh"],
    ["DELETE", ""],
  ] as const)("%s %s is refused to pages of other origins, and to requests of none", async (method, path) => {
    const body = method === "PUT" ? { refresh_token: "first" } : path === "" ? credentials : undefined;
    for (const origin of ["https://evil.test", "http://api.test", "null", ""]) {
      const o = { headers: { origin, ...having("first").headers }, ...(method !== "DELETE" && body && { body }) };
      const refused = await send(method, path, o);
      expect([origin, refused.statusCode, refused.json().error.code]).toEqual([origin, 403, "forbidden"]);
      expect(refused.headers["set-cookie"]).toBeUndefined();
    }
    expect([refreshed, signedOut]).toEqual([[], []]);
  });

  test("is no credential of the API", async () => {
    const response = await get("/workspaces", { origin: own, ...having("first").headers });
    expect(response.json().error.code).toBe("unauthenticated");
    const other = await platform.app.inject({ method: "POST", url: "/auth/refresh", ...having("first"), payload: {} });
    expect(other.statusCode).toBe(422);
  });

  test("has the same cookie on this machine, where browsers take a secure one over plain http", async () => {
    const headers = { origin: "http://127.0.0.1:8080", host: "127.0.0.1:8080" };
    const response = await send("POST", "", { body: credentials, headers });
    expect(response.headers["set-cookie"]).toBe(cookie("first", 1800));
  });

  test("has a cookie of its own paths where the API is reached by plain http from elsewhere", async () => {
    const tokens = tokensAfter("first");
    const plain = await openTestPlatform({
      env: { SANDGATE_PUBLIC_URL: "http://localhost:8080/v", SANDGATE_SIGNIN_RATE_LIMIT: "0" },
      handlers: { identity: { signIn: () => ({ tokens }) } },
    });
    const response = await plain.app.inject({
      method: "POST",
      url: "/dashboard/session",
      headers: { origin: "http://10.0.0.5:8080", host: "10.0.0.5:8080" },
      payload: credentials,
    });
    expect(response.headers["set-cookie"]).toBe(
      "sandgate-session=first; Max-Age=1800; Path=/v/dashboard/session; HttpOnly; SameSite=Strict",
    );
    await plain.close();
  });
});
