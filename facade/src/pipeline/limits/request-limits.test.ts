import { newId } from "@sandgate/kit/base/ids";
import { Role } from "@sandgate/proto/common/v1/access";
import { afterEach, expect, test } from "vitest";
import {
  apiToken,
  type Handlers,
  openTestPlatform,
  sandboxMessage,
  type TestPlatform,
  userId,
  workspaceId,
} from "../../test-platform.ts";
import { createLocalRateLimiter } from "./rate-limiter.local.ts";

let platform: TestPlatform | undefined;
afterEach(async () => {
  await platform?.close();
  platform = undefined;
});

test("counts per key in windows of a minute", async () => {
  let now = 1000;
  const limiter = createLocalRateLimiter({ now: () => now });
  expect(await limiter.consume("a", 2)).toEqual({ limit: 2, remaining: 1, resetSeconds: 60, allowed: true });
  expect(await limiter.consume("a", 2)).toMatchObject({ remaining: 0, allowed: true });
  now += 30_500;
  expect(await limiter.consume("a", 2)).toEqual({ limit: 2, remaining: 0, resetSeconds: 30, allowed: false });
  expect(await limiter.consume("b", 2)).toMatchObject({ remaining: 1, resetSeconds: 60 });
  expect(await limiter.peek("a", 2)).toMatchObject({ remaining: 0 });
  now += 29_500;
  expect(await limiter.peek("a", 2)).toMatchObject({ remaining: 2, allowed: true });
  expect(await limiter.consume("a", 2)).toMatchObject({ remaining: 1, resetSeconds: 60, allowed: true });
});

test("limits each credential, and addresses without one, apart from each other", async () => {
  platform = await openTestPlatform({ env: { SANDGATE_RATE_LIMIT: "2", SANDGATE_SIGNIN_RATE_LIMIT: "0" } });
  const { app, signAccessToken } = platform;
  const read = (headers: Record<string, string>) => app.inject({ url: "/workspaces/x", headers });
  const withoutToken = [await read({}), await app.inject("/nowhere"), await read({ authorization: "Bearer x" })];
  expect(withoutToken.map(({ statusCode }) => statusCode)).toEqual([401, 404, 429]);
  expect(withoutToken[2]?.json().error).toMatchObject({ code: "rate_limited", retryable: true });
  expect(Number(withoutToken[2]?.headers["retry-after"])).toBeGreaterThanOrEqual(1);
  for (const token of [await signAccessToken(), apiToken]) {
    const statuses = [];
    for (let i = 0; i < 3; i++) {
      const response = await read({ authorization: `Bearer ${token}` });
      expect(response.headers).toMatchObject({
        "ratelimit-limit": "2",
        "ratelimit-remaining": String(Math.max(0, 1 - i)),
        "ratelimit-reset": expect.stringMatching(/^[1-9]\d*$/),
      });
      statuses.push(response.statusCode);
    }
    expect(statuses).toEqual([422, 422, 429]);
  }
  const probe = await app.inject("/healthz");
  expect(probe.statusCode).toBe(200);
  expect(probe.headers["ratelimit-remaining"]).toBe("0");
});

test("limits a user over all tokens, but not for what one of them was refused", async () => {
  const verified = (token: string) => ({ tokenId: token, userId: "u-many", operator: false });
  platform = await openTestPlatform({
    env: { SANDGATE_RATE_LIMIT: "2" },
    handlers: { identity: { verifyApiToken: ({ token }) => verified(token) } },
  });
  const { app } = platform;
  const read = async (token: string) => {
    const response = await app.inject({ url: "/workspaces/x", headers: { authorization: `Bearer ${token}` } });
    const { "ratelimit-limit": limit, "ratelimit-remaining": remaining } = response.headers;
    return [response.statusCode, `${remaining} of ${limit}`];
  };
  for (const expected of [
    [422, "1 of 2"],
    [422, "0 of 2"],
    [429, "0 of 2"],
    [429, "0 of 2"],
  ]) {
    expect(await read("sgt_1")).toEqual(expected);
  }
  expect(await read("sgt_2")).toEqual([422, "1 of 2"]);
  expect(await read("sgt_3")).toEqual([422, "0 of 4"]);
  expect(await read("sgt_3")).toEqual([429, "0 of 4"]);
  expect(await read("sgt_2")).toEqual([429, "0 of 4"]);
});

/** Provisions as this user; the answer's status and the seconds after which it may be tried again. */
async function openForChanges(env: NodeJS.ProcessEnv, handlers: Handlers = {}, sharedLimits = false) {
  platform = await openTestPlatform({
    env: { SANDGATE_RATE_LIMIT: "0", ...env },
    sharedLimits,
    handlers: {
      workspace: { getMembership: () => ({ workspaceExists: true, role: Role.OWNER }) },
      sandbox: {
        provisionSandbox: () => ({ sandbox: sandboxMessage() }),
        stopSandbox: () => ({ sandbox: sandboxMessage() }),
        waitSandboxes: () => ({ sandboxes: [sandboxMessage()] }),
      },
      ...handlers,
    },
  });
  const { app, signAccessToken } = platform;
  const call = async (
    method: "POST" | "DELETE",
    url: string,
    payload?: object,
    sub = userId,
    workspace = workspaceId,
  ) =>
    app.inject({
      method,
      url,
      headers: { authorization: `Bearer ${await signAccessToken({ sub })}`, "x-workspace-id": workspace },
      ...(payload && { payload }),
    });
  const provision = (sub?: string, workspace?: string) =>
    call("POST", "/sandboxes/provision", { image_id: "i" }, sub, workspace);
  return {
    call,
    provision,
    statusOf: async (...given: Parameters<typeof provision>) => (await provision(...given)).statusCode,
  };
}

test("limits what a user creates and changes in an hour, and nothing that ends, reads, waits or is refused", async () => {
  const { call, provision, statusOf } = await openForChanges({ SANDGATE_CHANGE_RATE_LIMIT: "2" });
  const refused = [await call("POST", "/sandboxes/provision", {}), await call("POST", "/registries", {})];
  expect(refused.map(({ statusCode }) => statusCode)).toEqual([422, 422]);
  expect([await statusOf(), await statusOf()]).toEqual([201, 201]);
  const limited = await provision();
  expect(limited.statusCode).toBe(429);
  expect(limited.json().error).toMatchObject({
    code: "rate_limited",
    message: "You have changed too much within an hour.",
    hint: expect.stringContaining("you can still read, stop and delete"),
  });
  expect(Number(limited.headers["retry-after"])).toBeGreaterThan(60);
  expect((await call("POST", "/workspaces", { name: "more" })).statusCode).toBe(429);
  const others = [await call("DELETE", "/sandboxes/box"), await call("POST", "/sandboxes/wait", { sandbox_id: "box" })];
  expect(others.map(({ statusCode }) => statusCode)).toEqual([204, 200]);
  expect(await statusOf(newId())).toBe(201);
});

test("limits what all members together create and change in a workspace", async () => {
  const { provision, statusOf } = await openForChanges({ SANDGATE_CHANGE_RATE_LIMIT: "1" });
  const statuses: number[] = [];
  for (let member = 0; member < 5; member++) statuses.push(await statusOf(newId()));
  expect(statuses).toEqual([201, 201, 201, 201, 201]);
  const last = newId();
  const limited = await provision(last);
  expect(limited.json().error).toMatchObject({
    code: "rate_limited",
    message: "Too much was changed in this workspace within an hour.",
  });
  // It was not counted against the user either.
  expect(await statusOf(last, newId())).toBe(201);
});

test("counts the changes of several facades in identity, in windows of an hour", async () => {
  const drawn: { limit: number; windowSeconds: number }[] = [];
  const { statusOf } = await openForChanges(
    { SANDGATE_CHANGE_RATE_LIMIT: "30" },
    {
      identity: {
        drawRequests({ limit, windowSeconds, wanted }) {
          drawn.push({ limit, windowSeconds });
          return { granted: wanted, remaining: 0, resetMs: 3_600_000 };
        },
      },
    },
    true,
  );
  expect(await statusOf()).toBe(201);
  expect(drawn).toEqual([
    { limit: 30, windowSeconds: 3600 },
    { limit: 150, windowSeconds: 3600 },
  ]);
  expect(await statusOf()).toBe(429);
});

test("counts requests and waits of several facades in identity", async () => {
  const asked: { limit: number; used: number; wanted: number }[] = [];
  let free = 1;
  platform = await openTestPlatform({
    env: { SANDGATE_RATE_LIMIT: "60" },
    sharedLimits: true,
    handlers: {
      identity: {
        drawRequests: ({ wanted }) => ({ granted: wanted, remaining: 40, resetMs: 30_000 }),
        holdSlots({ requests }) {
          asked.push(...requests);
          return { held: requests.map(({ used, wanted }) => Math.max(used, Math.min(wanted, free))), leaseMs: 30_000 };
        },
      },
      sandbox: { waitSandboxes: () => ({ sandboxes: [sandboxMessage()] }) },
    },
  });
  const { app, signAccessToken } = platform;
  const wait = async (sid: string) =>
    app.inject({
      method: "POST",
      url: "/sandboxes/wait",
      headers: { authorization: `Bearer ${await signAccessToken({ sid })}`, "x-workspace-id": workspaceId },
      payload: { sandbox_id: "box" },
    });
  const answered = await wait("s1");
  expect(answered.statusCode).toBe(200);
  expect(answered.headers["ratelimit-remaining"]).toBe("41");
  expect(asked).toMatchObject([
    { limit: 100, used: 0, wanted: 3 },
    { limit: 200, used: 0, wanted: 5 },
  ]);
  free = 0;
  const refused = await wait("s2");
  expect(refused.statusCode).toBe(429);
  expect(refused.json().error.message).toBe("This credential has 100 waits and streams open.");
});

test("counts a request for all its keys or for none", async () => {
  const limiter = createLocalRateLimiter();
  const both = [
    { key: "a", limit: 1 },
    { key: "b", limit: 3 },
  ];
  expect(await limiter.consumeAll(both)).toMatchObject([
    { allowed: true, remaining: 0 },
    { allowed: true, remaining: 2 },
  ]);
  expect(await limiter.consumeAll(both)).toMatchObject([
    { allowed: false, remaining: 0 },
    { allowed: true, remaining: 2 },
  ]);
  expect(await limiter.peek("b", 3)).toMatchObject({ remaining: 2 });
});

/** Sends requests as if from many addresses, by way of a trusted proxy. */
async function openBehindProxy(env: NodeJS.ProcessEnv) {
  platform = await openTestPlatform({
    env: { SANDGATE_TRUSTED_PROXIES: "127.0.0.0/8", ...env },
    handlers: {
      identity: {
        register: () => ({}),
        resendVerification: () => ({}),
        requestPasswordReset: () => ({}),
        signIn: () => ({
          tokens: { accessToken: "a", refreshToken: "r", expiresInSeconds: 300, refreshExpiresInSeconds: 1800 },
        }),
      },
    },
  });
  const { app } = platform;
  return (url: string, address: string, username = "ann@example.com") =>
    app.inject({
      method: "POST",
      url,
      headers: { "x-forwarded-for": address },
      payload: { username, password: "correct horse battery" },
    });
}

test("limits sign-ins per address, and no account for what others do", async () => {
  const send = await openBehindProxy({ SANDGATE_SIGNIN_RATE_LIMIT: "2" });
  const login = async (address: string, username: string) => {
    const response = await send("/auth/login", address, username);
    expect(response.headers["ratelimit-limit"]).toBe("2");
    return response.statusCode;
  };
  expect([await login("192.0.2.1", "a"), await login("192.0.2.1", "b"), await login("192.0.2.1", "c")]).toEqual([
    200, 200, 429,
  ]);
  expect([await login("192.0.2.2", "a"), await login("192.0.2.3", "a"), await login("192.0.2.4", "a")]).toEqual([
    200, 200, 200,
  ]);
});

test.each(["/auth/register", "/auth/resend-verification", "/auth/password/forgot"])(
  "limits %s like sign-ins, whose limit it doesn't use up",
  async (url) => {
    const send = await openBehindProxy({ SANDGATE_SIGNIN_RATE_LIMIT: "2" });
    const statuses: number[] = [];
    for (let i = 0; i < 3; i++) statuses.push((await send(url, "192.0.2.1", `ann${i}@example.com`)).statusCode);
    expect(statuses).toEqual([url === "/auth/register" ? 201 : 202, url === "/auth/register" ? 201 : 202, 429]);
    expect((await send(url, "192.0.2.2")).statusCode).toBeLessThan(300);
    expect((await send("/auth/login", "192.0.2.1")).statusCode).toBe(200);
  },
);

test.each([
  { around: "an IPv4 /24", addressOf: (i: number) => `192.0.2.${i}`, other: "192.0.3.1", attempts: 8 },
  {
    around: "an IPv6 /56",
    addressOf: (i: number) => `2001:db8:1:${i.toString(16)}::1`,
    other: "2001:db8:1:100::1",
    attempts: 4,
  },
  {
    around: "an IPv6 /48",
    addressOf: (i: number) => `2001:db8:1:${i.toString(16)}00::1`,
    other: "2001:db8:2::1",
    attempts: 16,
  },
])("limits $around as a whole", async ({ addressOf, other, attempts }) => {
  const send = await openBehindProxy({ SANDGATE_SIGNIN_RATE_LIMIT: "1" });
  const statuses: number[] = [];
  for (let i = 0; i <= attempts; i++) statuses.push((await send("/auth/login", addressOf(i), `user ${i}`)).statusCode);
  expect(statuses).toEqual([...Array.from({ length: attempts }, () => 200), 429]);
  expect((await send("/auth/login", other)).statusCode).toBe(200);
});

test("believes X-Forwarded-For from trusted proxies alone", async () => {
  platform = await openTestPlatform({ env: { SANDGATE_RATE_LIMIT: "1", SANDGATE_TRUSTED_PROXIES: "192.0.2.0/24" } });
  const { app } = platform;
  const read = async (remoteAddress: string, address: string) =>
    (await app.inject({ url: "/docs", remoteAddress, headers: { "x-forwarded-for": address } })).statusCode;
  expect([await read("198.51.100.1", "1.1.1.1"), await read("198.51.100.1", "1.1.1.2")]).toEqual([200, 429]);
  expect([await read("192.0.2.9", "1.1.1.1"), await read("192.0.2.9", "1.1.1.2")]).toEqual([200, 200]);
});
