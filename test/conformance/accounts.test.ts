import { Secret, TOTP } from "otpauth";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectInvalid, expectStatus, isoMilliseconds, uniqueName, uuid } from "./client.ts";
import { openTarget, type Target, type Tenant } from "./target.ts";

let target: Target;
let user: Tenant;

beforeAll(async () => {
  target = await openTarget();
  user = await target.newTenant();
});
afterAll(() => target?.close());

const password = "correct horse battery";
const tokenSet = {
  access_token: expect.stringMatching(/^[\w-]+\.[\w-]+\.[\w-]+$/),
  refresh_token: expect.stringMatching(/\S{20,}/),
  expires_in: 300,
  refresh_expires_in: 1800,
};
const signIn = async (who: { username: string; password: string }) =>
  target.post("/auth/login", { username: who.username, password: who.password, recaptchaToken: "x" });

/** The token in the first mail after the one with another token. */
async function nextToken(username: string, other: string): Promise<string> {
  await expect.poll(() => target.mailedToken(username)).not.toBe(other);
  return target.mailedToken(username);
}

describe("signing up", () => {
  test("by the mailed link, which works once", async () => {
    const username = `${uniqueName("new")}@example.com`;
    const registered = await target.post("/auth/register", { username, password, recaptchaToken: "" });
    expect(expectStatus(registered, 201)).toEqual({ success: true });
    const link = { token: await target.mailedToken(username), password };
    expect(expectStatus(await target.post("/auth/verify-email", link), 200)).toEqual({ success: true });
    expectError(await target.post("/auth/verify-email", link), "invalid_token");
    expectStatus(await signIn({ username, password }), 200);
  });

  test("opening the link's page does not use the token", async () => {
    const answer = await target.get("/auth/verify-email?token=x");
    expect(answer.status).toBe(200);
    expect(answer.headers.get("content-type")).toMatch(/^text\/html/);
    expect(answer.headers.get("content-security-policy")).toContain("default-src 'none'");
  });

  test("a username that is taken gets the same answer, and keeps its password", async () => {
    const again = await target.post("/auth/register", {
      username: user.username.toUpperCase(),
      password: "another password",
      recaptchaToken: "",
    });
    expect(expectStatus(again, 201)).toEqual({ success: true });
    expectError(await signIn({ username: user.username, password: "another password" }), "invalid_credentials");
    expectStatus(await signIn(user), 200);
  });

  test("refuses an invalid address and an invalid password", async () => {
    expectInvalid(
      await target.post("/auth/register", { username: "no address", password: "short", recaptchaToken: "" }),
      "body.username",
      "body.password",
    );
    expectInvalid(await target.post("/auth/register", {}), "body.username", "body.password");
    expectInvalid(
      await target.post("/auth/register", { username: "a@example.com", password: "x".repeat(257), recaptchaToken: "" }),
      "body.password",
    );
  });

  test("a new link can be requested for any username", async () => {
    for (const username of [user.username, "nobody@example.com"]) {
      expectStatus(await target.post("/auth/resend-verification", { username }), 202);
    }
  });

  test("a link sets the password that comes with it, whoever asked for its mail, and ends the other links", async () => {
    const username = `${uniqueName("new")}@example.com`;
    const stranger = { username, password: "somebody's own secret" };
    expectStatus(await target.post("/auth/register", stranger), 201);
    const first = await target.mailedToken(username);
    expectStatus(await target.post("/auth/resend-verification", { username }), 202);
    const resent = await nextToken(username, first);
    for (const token of [first, resent]) {
      expectInvalid(await target.post("/auth/verify-email", { token }), "body.password");
      expectInvalid(await target.post("/auth/verify-email", { token, password: "password123" }), "body.password");
    }
    expectError(await signIn(stranger), "email_not_verified");
    expectStatus(await target.post("/auth/verify-email", { token: first, password }), 200);
    expectError(await target.post("/auth/verify-email", { token: resent, password }), "invalid_token");
    expectError(await signIn(stranger), "invalid_credentials");
    expectStatus(await signIn({ username, password }), 200);
  });

  test("a password that is easy to guess is refused", async () => {
    const username = `${uniqueName("new")}@example.com`;
    expectInvalid(await target.post("/auth/register", { username, password: "password123" }), "body.password");
  });

  test("a wrong verification token is invalid", async () => {
    expectError(await target.post("/auth/verify-email", { token: "nonsense", password }), "invalid_token");
  });
});

describe("signing in", () => {
  test("answers the tokens; usernames are case-insensitive", async () => {
    const answer = await signIn({ username: user.username.toUpperCase(), password: user.password });
    expect(expectStatus(answer, 200)).toEqual({ success: true, tokens: tokenSet });
    expect(answer.headers.get("cache-control")).toBe("no-store");
  });

  test("needs no recaptchaToken while no secret is set", async () => {
    expectStatus(await target.post("/auth/login", { username: user.username, password: user.password }), 200);
  });

  test("reports every missing field", async () => {
    expectInvalid(await target.post("/auth/login", {}), "body.username", "body.password");
    expectInvalid(await target.post("/auth/login", { username: 5, password: null }), "body.username", "body.password");
  });
});

describe("refreshing", () => {
  test("rotates the token; a retry gets the same new one", async () => {
    const { tokens } = expectStatus(await signIn(user), 200);
    const first = expectStatus(await target.post("/auth/refresh", { refresh_token: tokens.refresh_token }), 200);
    expect(first).toEqual({ success: true, tokens: tokenSet });
    expect(first.tokens.refresh_token).not.toBe(tokens.refresh_token);
    const retried = expectStatus(await target.post("/auth/refresh", { refresh_token: tokens.refresh_token }), 200);
    expect(retried.tokens.refresh_token).toBe(first.tokens.refresh_token);
    expectStatus(await target.get("/workspaces", { token: first.tokens.access_token }), 200);
  });

  test("reusing an older token revokes the whole session", async () => {
    const { tokens } = expectStatus(await signIn(user), 200);
    const second = expectStatus(
      await target.post("/auth/refresh", { refresh_token: tokens.refresh_token }),
      200,
    ).tokens;
    const third = expectStatus(await target.post("/auth/refresh", { refresh_token: second.refresh_token }), 200).tokens;
    expectError(await target.post("/auth/refresh", { refresh_token: tokens.refresh_token }), "invalid_token");
    expectError(await target.post("/auth/refresh", { refresh_token: third.refresh_token }), "invalid_token");
    await expect
      .poll(async () => (await target.get("/workspaces", { token: third.access_token })).body?.error?.code)
      .toBe("invalid_token");
  });

  test("an unknown token, an access token and a missing token are refused", async () => {
    expectError(await target.post("/auth/refresh", { refresh_token: "nonsense" }), "invalid_token");
    expectError(await target.post("/auth/refresh", { refresh_token: user.token }), "invalid_token");
    expectInvalid(await target.post("/auth/refresh", {}), "body.refresh_token");
  });

  test("logout ends the session, its access tokens soon after, and no other session", async () => {
    const { tokens } = expectStatus(await signIn(user), 200);
    expectStatus(await target.post("/auth/logout", { refresh_token: tokens.refresh_token }), 204);
    expectError(await target.post("/auth/refresh", { refresh_token: tokens.refresh_token }), "invalid_token");
    await expect
      .poll(async () => (await target.get("/workspaces", { token: tokens.access_token })).body?.error?.code)
      .toBe("invalid_token");
    expectStatus(await target.get("/workspaces", { token: user.token }), 200);
  });

  test("logout gives the same answer for an unknown token", async () => {
    expectStatus(await target.post("/auth/logout", { refresh_token: "nonsense" }), 204);
  });
});

describe("sessions", () => {
  test("are listed, and end one by one or all others at once", async () => {
    const tenant = await target.newTenant();
    const own = { token: tenant.token };
    const others: { access_token: string; refresh_token: string }[] = [];
    for (let i = 0; i < 3; i++) others.push(expectStatus(await signIn(tenant), 200).tokens);
    const { sessions, next_cursor } = expectStatus(await target.get("/auth/sessions", own), 200);
    expect(next_cursor).toBeNull();
    expect(sessions).toHaveLength(4);
    expect(sessions[3]).toEqual({
      id: expect.any(String),
      created_at: isoMilliseconds,
      last_seen_at: isoMilliseconds,
      address: expect.any(String),
      user_agent: expect.any(String),
      current: true,
    });
    const page = expectStatus(await target.get("/auth/sessions?limit=3", own), 200);
    expect(page.sessions).toEqual(sessions.slice(0, 3));
    const path = `/auth/sessions/${sessions[0].id}`;
    expectError(await target.delete(path, { token: (await target.newTenant()).token }), "not_found");
    expectStatus(await target.delete(path, own), 204);
    expectError(await target.delete(path, own), "not_found");
    expectError(await target.post("/auth/refresh", { refresh_token: others[2]?.refresh_token }), "invalid_token");
    expectStatus(await target.get("/workspaces", { token: others[1]?.access_token }), 200);
    expectStatus(await target.delete("/auth/sessions", own), 204);
    await expect
      .poll(async () => (await target.get("/workspaces", { token: others[1]?.access_token })).body?.error?.code)
      .toBe("invalid_token");
    expect(expectStatus(await target.get("/auth/sessions", own), 200).sessions).toHaveLength(1);
    const { token } = expectStatus(await target.post("/api-tokens/", { description: "ci" }, own), 201);
    expectError(await target.get("/auth/sessions", { token }), "forbidden");
    expectError(await target.delete("/auth/sessions", { token }), "forbidden");
  });
});

describe("operators", () => {
  const code = async (path: string, token: string) => (await target.get(path, { token })).body?.error?.code;

  test("disable, enable, sign out and delete users; others may not", async () => {
    const operator = { token: target.operator.token };
    const tenant = await target.newTenant();
    const { users } = expectStatus(
      await target.get(`/admin/users?username=${encodeURIComponent(tenant.username.toUpperCase())}`, operator),
      200,
    );
    expect(users).toEqual([
      {
        id: uuid,
        username: tenant.username,
        verified: true,
        operator: false,
        enabled: true,
        created_at: isoMilliseconds,
      },
    ]);
    const path = `/admin/users/${users[0].id}`;
    const { token } = expectStatus(
      await target.post("/api-tokens/", { description: "ci" }, { token: tenant.token }),
      201,
    );
    for (const request of [
      target.get("/admin/sandboxes", { token: tenant.token }),
      target.delete("/admin/sandboxes/s1", { token: tenant.token }),
      target.delete("/admin/sandboxes/s1", { token }),
      target.get("/admin/users", { token: tenant.token }),
      target.put(path, { enabled: false }, { token: tenant.token }),
      target.delete(path, { token: tenant.token }),
      target.get("/admin/users", { token }),
    ]) {
      expectError(await request, "forbidden");
    }
    expectError(await target.get("/admin/users"), "unauthenticated");

    expect(expectStatus(await target.put(path, { enabled: false }, operator), 200)).toMatchObject({ enabled: false });
    await expect.poll(() => code("/workspaces", tenant.token)).toBe("invalid_token");
    await expect.poll(() => code("/workspaces", token)).toBe("invalid_token");
    expectError(await signIn(tenant), "forbidden");
    expectStatus(await target.put(path, { enabled: true }, operator), 200);
    const { tokens } = expectStatus(await signIn(tenant), 200);
    await expect.poll(() => code("/workspaces", token)).toBeUndefined();

    expectStatus(await target.delete(`${path}/sessions`, operator), 204);
    await expect.poll(() => code("/workspaces", tokens.access_token)).toBe("invalid_token");
    expectStatus(await target.delete(`${path}/api-tokens`, operator), 204);
    await expect.poll(() => code("/workspaces", token)).toBe("invalid_token");

    expectStatus(await target.delete(path, operator), 204);
    expectError(await target.delete(path, operator), "not_found");
    expectError(await signIn(tenant), "invalid_credentials");
  });
});

describe("a second factor", () => {
  const codeOf = (secret: string, timestamp = Date.now()) =>
    TOTP.generate({ secret: Secret.fromBase32(secret), timestamp });

  async function enroll(tenant: Tenant): Promise<{ secret: string; recovery_codes: string[] }> {
    const own = { token: tenant.token };
    const created = await target.post("/auth/second-factor", { password: tenant.password }, own);
    const { secret } = expectStatus(created, 201);
    expect(created.headers.get("cache-control")).toBe("no-store");
    const confirmed = await target.post("/auth/second-factor/confirm", { otp: codeOf(secret) }, own);
    return { secret, ...expectStatus(confirmed, 200) };
  }

  test("is set up with an app, asked for at each sign-in, and removed", async () => {
    const tenant = await target.newTenant();
    const own = { token: tenant.token };
    const status = async () => expectStatus(await target.get("/auth/second-factor", own), 200);
    expect(await status()).toEqual({ enabled: false, recovery_codes_left: 0 });
    const begin = (password: string) => target.post("/auth/second-factor", { password }, own);
    expectError(await begin("wrong password"), "invalid_credentials");
    const { secret, uri } = expectStatus(await begin(tenant.password), 201);
    expect(uri).toMatch(new RegExp(`^otpauth://totp/.*secret=${secret}`));
    const confirm = (otp: string) => target.post("/auth/second-factor/confirm", { otp }, own);
    const wrong = await confirm("000000");
    expectError(wrong, "invalid_credentials");
    expect(wrong.body.error.details).toEqual([{ field: "body.otp", issue: expect.any(String) }]);
    const { recovery_codes } = expectStatus(await confirm(codeOf(secret)), 200);
    expect(recovery_codes).toHaveLength(10);
    expectError(await begin(tenant.password), "conflict");
    expectError(await confirm(codeOf(secret)), "conflict");
    expect(await status()).toEqual({ enabled: true, recovery_codes_left: 10 });
    expect(expectStatus(await target.get("/auth/account", own), 200).has_second_factor).toBe(true);

    const login = (more: object) =>
      target.post("/auth/login", { username: tenant.username, password: tenant.password, ...more });
    expect((await login({ password: "wrong password" })).body.error).not.toHaveProperty("details");
    for (const more of [{}, { otp: "000000" }]) {
      const answer = await login(more);
      expectError(answer, "invalid_credentials");
      expect(answer.body.error.details).toEqual([{ field: "body.otp", issue: expect.any(String) }]);
    }
    expectInvalid(await login({ otp: "" }), "body.otp");
    const next = codeOf(secret, Date.now() + 30_000);
    expectStatus(await login({ otp: next }), 200);
    expectError(await login({ otp: next }), "invalid_credentials");
    expectStatus(await login({ otp: recovery_codes[0] }), 200);
    expectError(await login({ otp: recovery_codes[0] }), "invalid_credentials");

    const confirmed = { password: tenant.password, otp: recovery_codes[1] };
    const replaced = expectStatus(await target.post("/auth/second-factor/recovery-codes", confirmed, own), 200);
    expect(await status()).toEqual({ enabled: true, recovery_codes_left: 10 });
    const remove = (otp: string) =>
      target.send("DELETE", "/auth/second-factor", { ...own, body: { password: tenant.password, otp } });
    expectError(await remove(recovery_codes[2]), "invalid_credentials");
    expectStatus(await remove(replaced.recovery_codes[0]), 204);
    expectError(await remove(replaced.recovery_codes[1]), "conflict");
    expectStatus(await login({}), 200);
  });

  test("pauses after five wrong codes in a row, for those who know the password", async () => {
    const tenant = await target.newTenant();
    const { recovery_codes } = await enroll(tenant);
    const login = (otp: string, password = tenant.password) =>
      target.post("/auth/login", { username: tenant.username, password, otp });
    for (let i = 0; i < 5; i++) expectError(await login("000000"), "invalid_credentials");
    const refused = await login(recovery_codes[0] ?? "");
    expectError(refused, "rate_limited");
    expect(Number(refused.headers.get("retry-after"))).toBeLessThanOrEqual(30);
    expectError(await login("000000", "wrong password"), "invalid_credentials");
  });

  test("of a user who has lost it is removed by an operator, which ends the sessions", async () => {
    const tenant = await target.newTenant();
    await enroll(tenant);
    const operator = { token: target.operator.token };
    const { users } = expectStatus(
      await target.get(`/admin/users?username=${encodeURIComponent(tenant.username)}`, operator),
      200,
    );
    const path = `/admin/users/${users[0].id}/second-factor`;
    expectError(await target.delete(path, { token: tenant.token }), "forbidden");
    expectStatus(await target.delete(path, operator), 204);
    await expect
      .poll(async () => (await target.get("/workspaces", { token: tenant.token })).body?.error?.code)
      .toBe("invalid_token");
    expectStatus(await signIn(tenant), 200);
  });

  test("takes a session, no API token", async () => {
    const { token } = expectStatus(
      await target.post("/api-tokens/", { description: "ci" }, { token: user.token }),
      201,
    );
    expectError(await target.get("/auth/second-factor", { token }), "forbidden");
    expectError(await target.post("/auth/second-factor", { password: user.password }, { token }), "forbidden");
    expectError(await target.get("/auth/second-factor"), "unauthenticated");
  });
});

describe("the caller's account", () => {
  const read = async (token: string, workspace?: string) =>
    expectStatus(await target.get("/auth/account", { token, workspace }), 200);

  test("is shown to a session, and to API tokens with what they may do", async () => {
    const session = {
      id: uuid,
      username: user.username,
      is_operator: false,
      has_second_factor: false,
      created_at: isoMilliseconds,
      credential: "session",
      workspace_id: null,
      role: null,
      permissions: null,
    };
    const shown = await read(user.token);
    expect(shown).toEqual(session);
    const create = async (fields: object): Promise<string> =>
      expectStatus(await target.post("/api-tokens", { description: "me", ...fields }, { token: user.token }), 201)
        .token;
    const apiToken = { ...shown, credential: "api_token" };
    expect(await read(await create({}))).toEqual(apiToken);
    const limited = { workspace_id: user.workspace, role: "member", permissions: ["use"] };
    const token = await create(limited);
    expect(await read(token)).toEqual({ ...apiToken, ...limited });
    // The account belongs to no workspace, so the header is not looked at.
    expect(await read(token, "no workspace")).toEqual({ ...apiToken, ...limited });
    expect((await read(target.operator.token)).is_operator).toBe(true);
  });
});

describe("deleting an account", () => {
  test("needs the password before anything else, and ends sessions, memberships and the personal workspace", async () => {
    const [tenant, other] = [await target.newTenant(), await target.newTenant()];
    const own = { token: tenant.token };
    const shared = expectStatus(await target.post("/workspaces", { name: "shared" }, own), 201);
    const members = `/workspaces/${shared.id}/members`;
    const member = expectStatus(await target.post(members, { username: other.username, role: "member" }, own), 201);
    const remove = (password: string) => target.send("DELETE", "/auth/account", { ...own, body: { password } });
    expectError(await remove("wrong password"), "invalid_credentials");
    expectError(await remove(tenant.password), "conflict");
    expectStatus(await target.put(`${members}/${member.user_id}`, { role: "owner" }, own), 200);
    expectStatus(await remove(tenant.password), 204);
    await expect.poll(async () => (await target.get("/workspaces", own)).body?.error?.code).toBe("invalid_token");
    expectError(await signIn(tenant), "invalid_credentials");
    await expect.poll(async () => (await target.get(members, { token: other.token })).body?.members?.length).toBe(1);
  });
});

describe("passwords", () => {
  const next = "another long passphrase";

  test("a change ends the other sessions soon after, and keeps its own", async () => {
    const tenant = await target.newTenant();
    const { tokens: other } = expectStatus(await signIn(tenant), 200);
    const own = { token: tenant.token };
    const change = { current_password: tenant.password, password: next };
    expectError(
      await target.post("/auth/password", { ...change, current_password: "wrong" }, own),
      "invalid_credentials",
    );
    expectInvalid(await target.post("/auth/password", { ...change, password: "1234567890" }, own), "body.password");
    expectInvalid(await target.post("/auth/password", {}, own), "body.current_password", "body.password");
    expectError(await target.post("/auth/password", change), "unauthenticated");
    expect(expectStatus(await target.post("/auth/password", change, own), 200)).toEqual({ success: true });
    await expect
      .poll(async () => (await target.get("/workspaces", { token: other.access_token })).body?.error?.code)
      .toBe("invalid_token");
    expectError(await target.post("/auth/refresh", { refresh_token: other.refresh_token }), "invalid_token");
    expectStatus(await target.get("/workspaces", own), 200);
    expectError(await signIn(tenant), "invalid_credentials");
    expectStatus(await signIn({ username: tenant.username, password: next }), 200);
    const { token } = expectStatus(await target.post("/api-tokens/", { description: "ci" }, own), 201);
    expectError(await target.post("/auth/password", { ...change, current_password: next }, { token }), "forbidden");
  });

  test("a change revokes the API tokens where that is asked for", async () => {
    const tenant = await target.newTenant();
    const own = { token: tenant.token };
    const { token } = expectStatus(await target.post("/api-tokens/", { description: "ci" }, own), 201);
    const change = { current_password: tenant.password, password: next };
    expectInvalid(
      await target.post("/auth/password", { ...change, revoke_api_tokens: "yes" }, own),
      "body.revoke_api_tokens",
    );
    expectStatus(await target.post("/auth/password", change, own), 200);
    expectStatus(await target.get("/workspaces", { token }), 200);
    const back = { current_password: next, password: tenant.password, revoke_api_tokens: true };
    expectStatus(await target.post("/auth/password", back, own), 200);
    await expect.poll(async () => (await target.get("/workspaces", { token })).body?.error?.code).toBe("invalid_token");
  });

  test("a forgotten one is replaced by the mailed link, which works once, ends all sessions and revokes all API tokens", async () => {
    const tenant = await target.newTenant();
    const made = await target.post("/api-tokens/", { description: "ci" }, { token: tenant.token });
    const apiToken = expectStatus(made, 201).token;
    const old = await target.mailedToken(tenant.username);
    for (const username of ["nobody@example.com", tenant.username.toUpperCase()]) {
      expect(expectStatus(await target.post("/auth/password/forgot", { username }), 202)).toEqual({ success: true });
    }
    const token = await nextToken(tenant.username, old);
    const page = await target.get(`/auth/password/reset?token=${token}`);
    expect(page.headers.get("content-security-policy")).toContain("default-src 'none'");
    expectInvalid(await target.post("/auth/password/reset", { token, password: "short" }), "body.password");
    expectError(await target.post("/auth/password/reset", { token: "nonsense", password: next }), "invalid_token");
    const reset = await target.post("/auth/password/reset", { token, password: next });
    expect(expectStatus(reset, 200)).toEqual({ success: true, identities: [] });
    for (const revoked of [apiToken, tenant.token]) {
      await expect
        .poll(async () => (await target.get("/workspaces", { token: revoked })).body?.error?.code)
        .toBe("invalid_token");
    }
    expectError(await target.post("/auth/password/reset", { token, password: next }), "invalid_token");
    expectError(await target.post("/auth/refresh", { refresh_token: tenant.refreshToken }), "invalid_token");
    expectStatus(await signIn({ username: tenant.username, password: next }), 200);
  });
});

describe("API tokens", () => {
  const session = () => ({ token: user.token });

  test("are all revoked at once, those of their user alone", async () => {
    const [tenant, other] = [await target.newTenant(), await target.newTenant()];
    const make = async ({ token }: { token: string }) =>
      expectStatus(await target.post("/api-tokens/", { description: "ci" }, { token }), 201).token;
    const [one, two, others] = [await make(tenant), await make(tenant), await make(other)];
    expectError(await target.delete("/api-tokens", { token: one }), "forbidden");
    expectStatus(await target.delete("/api-tokens", { token: tenant.token }), 204);
    for (const token of [one, two]) {
      await expect
        .poll(async () => (await target.get("/workspaces", { token })).body?.error?.code)
        .toBe("invalid_token");
    }
    expectStatus(await target.get("/workspaces", { token: others }), 200);
    expectStatus(await target.delete("/api-tokens", { token: tenant.token }), 204);
  });

  test("are shown once, listed with a hint, and deleted by token or id", async () => {
    const created = expectStatus(await target.post("/api-tokens/", { description: "deploys" }, session()), 201);
    expect(created).toEqual({
      id: uuid,
      token: expect.stringMatching(/^sgt_[0-9A-Za-z]{30,}$/),
      description: "deploys",
      workspace_id: null,
      role: null,
      permissions: null,
      expires_at: null,
      created_at: isoMilliseconds,
    });
    const list = expectStatus(await target.get("/api-tokens", session()), 200);
    const listed = list.api_tokens.find((item: { id: string }) => item.id === created.id);
    expect(listed).toEqual({
      id: created.id,
      description: "deploys",
      token_hint: expect.any(String),
      workspace_id: null,
      role: null,
      permissions: null,
      expires_at: null,
      created_at: created.created_at,
      last_used_at: null,
    });
    expect(created.token.startsWith(listed.token_hint.replace(/\W+$/, ""))).toBe(true);
    expect(JSON.stringify(list)).not.toContain(created.token);
    expectStatus(await target.delete(`/api-tokens/${created.id}`, session()), 204);
    expectError(await target.delete(`/api-tokens/${created.token}`, session()), "api_key_not_found");
  });

  test("bound to a workspace are refused for any other", async () => {
    const second = expectStatus(await target.post("/workspaces", { name: "second" }, session()), 201);
    const { token } = expectStatus(
      await target.post("/api-tokens", { description: "bound", workspace_id: user.workspace }, session()),
      201,
    );
    expectStatus(await target.get("/sandboxes", { token, workspace: user.workspace }), 200);
    expectError(await target.get("/sandboxes", { token, workspace: second.id }), "workspace_forbidden");
    expectError(await target.get(`/workspaces/${second.id}`, { token }), "workspace_forbidden");
  });

  test("with a role have that, or their user's where it is lower, in every workspace", async () => {
    const workspace = expectStatus(await target.post("/workspaces", { name: "shared" }, session()), 201);
    const own = { ...session(), workspace: workspace.id };
    const create = async (role: string, as: { token: string }) =>
      expectStatus(await target.post("/api-tokens", { description: "limited", role }, as), 201);
    const created = await create("member", session());
    expect(created).toMatchObject({ role: "member" });
    const { api_tokens } = expectStatus(await target.get("/api-tokens", session()), 200);
    expect(api_tokens.find(({ id }: { id: string }) => id === created.id)).toMatchObject({ role: "member" });
    const as = { token: created.token, workspace: workspace.id };
    expectStatus(await target.get("/sandboxes", as), 200);
    expect(expectStatus(await target.get(`/workspaces/${workspace.id}`, as), 200)).toMatchObject({ role: "member" });
    const image = { name: "limited", image: "registry.example/app" };
    expectError(await target.post("/sandbox-images", image, as), "insufficient_role");
    expectError(await target.put(`/workspaces/${workspace.id}`, { name: "mine" }, as), "insufficient_role");
    expectError(await target.delete(`/workspaces/${workspace.id}`, as), "insufficient_role");
    expectError(await target.post("/workspaces", { name: "another" }, as), "insufficient_role");

    const admin = { token: (await create("admin", session())).token, workspace: workspace.id };
    expectStatus(await target.post("/sandbox-images", image, admin), 201);
    const other = await target.newTenant();
    const members = `/workspaces/${workspace.id}/members`;
    expectError(await target.post(members, { username: other.username, role: "owner" }, admin), "insufficient_role");
    const member = expectStatus(await target.post(members, { username: other.username, role: "member" }, own), 201);
    expectError(await target.put(`${members}/${member.user_id}`, { role: "owner" }, admin), "insufficient_role");

    const theirs = { token: (await create("owner", { token: other.token })).token, workspace: workspace.id };
    expectError(await target.post("/sandbox-images", image, theirs), "insufficient_role");
    expectInvalid(await target.post("/api-tokens", { description: "x", role: "root" }, session()), "body.role");
  });

  test("with a role, or bound to a workspace, have no rights of an operator", async () => {
    const as = { token: target.operator.token, workspace: target.operator.workspace };
    const defaultImage = { name: "for all", image: "registry.example/app", is_default: true };
    const create = async (body: object) => expectStatus(await target.post("/api-tokens", body, as), 201).token;
    for (const limit of [{ role: "owner" }, { workspace_id: as.workspace }]) {
      const token = await create({ description: "limited", ...limit });
      expectError(await target.post("/sandbox-images", defaultImage, { ...as, token }), "forbidden");
    }
  });

  test("with permissions do what these cover and nothing else, and say what they lack", async () => {
    const own = { ...session(), workspace: user.workspace };
    const create = async (body: object) =>
      expectStatus(await target.post("/api-tokens", { description: "limited", ...body }, session()), 201);
    const created = await create({ permissions: ["use", "provision"] });
    expect(created).toMatchObject({ permissions: ["provision", "use"], role: null });
    const { api_tokens } = expectStatus(await target.get("/api-tokens", session()), 200);
    const listed = api_tokens.find(({ id }: { id: string }) => id === created.id);
    expect(listed).toMatchObject({ permissions: ["provision", "use"] });
    const as = { ...own, token: created.token };
    expectError(await target.post("/sandboxes/wait", { sandbox_id: "unknown" }, as), "sandbox_not_found");
    const lacking = await target.get("/sandboxes", as);
    expectError(lacking, "forbidden");
    expect(lacking.body.error.hint).toContain('"read"');
    expectError(await target.get("/workspaces", as), "forbidden");
    expectError(await target.post("/workspaces", { name: "another" }, as), "forbidden");

    const reading = { ...own, token: (await create({ permissions: ["read"], role: "member" })).token };
    expectStatus(await target.get("/sandboxes", reading), 200);
    expectError(await target.delete("/sandboxes/unknown", reading), "forbidden");
    expectError(await target.get(`/workspaces/${user.workspace}/audit-log`, reading), "insufficient_role");

    const image = { name: "limited", image: "registry.example/app" };
    const managing = { ...own, token: (await create({ permissions: ["manage"] })).token };
    const made = expectStatus(await target.post("/sandbox-images", image, managing), 201);
    expectError(await target.get(`/sandbox-images/${made.id}`, managing), "forbidden");
    expectStatus(await target.delete(`/sandbox-images/${made.id}`, managing), 204);
    expectStatus(await target.delete(`/api-tokens/${managing.token}`, session()), 204);
    expectError(await target.post("/sandbox-images", image, managing), "invalid_token");
  });

  test("name each permission once, none that doesn't exist, and at least one", async () => {
    const bad = [[], ["read", "read"], ["read", "admin"], ["READ"], [1], [null], "read", { 0: "read" }, null];
    for (const permissions of [...bad, Array.from({ length: 1_000 }, () => "admin")]) {
      const answer = await target.post("/api-tokens", { description: "x", permissions }, session());
      expectInvalid(answer, "body.permissions");
    }
  });

  test("can't be bound to another user's workspace, nor expire in the past", async () => {
    const other = await target.newTenant();
    const bound = await target.post("/api-tokens", { description: "x", workspace_id: other.workspace }, session());
    expectError(bound, "workspace_forbidden");
    const past = await target.post("/api-tokens", { description: "x", expires_at: "2020-01-01T00:00:00Z" }, session());
    expectInvalid(past, "body.expires_at");
  });

  test("expire", async () => {
    const create = (expires_at: string) => target.post("/api-tokens", { description: "short", expires_at }, session());
    // The slower the machine, the longer one has to last to be seen at work.
    for (let lastsMs = 1_500; ; lastsMs *= 2) {
      const { status, body } = await create(new Date(Date.now() + lastsMs).toISOString());
      const { token } = body;
      if (status !== 201 || (await target.get("/workspaces", { token })).status !== 200) continue;
      const code = async () => (await target.get("/workspaces", { token })).body?.error?.code;
      await expect.poll(code).toBe("invalid_token");
      return;
    }
  });

  test("can't manage API tokens", async () => {
    const { token } = expectStatus(await target.post("/api-tokens", { description: "ci" }, session()), 201);
    expectError(await target.get("/api-tokens", { token }), "forbidden");
    expectError(await target.post("/api-tokens", { description: "y" }, { token }), "forbidden");
    expectError(await target.delete(`/api-tokens/${token}`, { token }), "forbidden");
  });

  test("are listed page by page, newest first", async () => {
    const tenant = await target.newTenant();
    const made: string[] = [];
    for (let i = 0; i < 5; i++) {
      made.push(
        expectStatus(await target.post("/api-tokens", { description: `t${i}` }, { token: tenant.token }), 201).id,
      );
    }
    const first = expectStatus(await target.get("/api-tokens?limit=3", { token: tenant.token }), 200);
    expect(first.api_tokens.map((item: { id: string }) => item.id)).toEqual(made.slice(2).reverse());
    await target.post("/api-tokens", { description: "between" }, { token: tenant.token });
    const rest = expectStatus(
      await target.get(`/api-tokens?limit=3&cursor=${encodeURIComponent(first.next_cursor)}`, { token: tenant.token }),
      200,
    );
    expect(rest.api_tokens.map((item: { id: string }) => item.id)).toEqual(made.slice(0, 2).reverse());
    expect(rest.next_cursor).toBeNull();
    expectInvalid(await target.get("/api-tokens?cursor=nonsense", { token: tenant.token }), "query.cursor");
    expectInvalid(await target.get("/api-tokens?limit=501", { token: tenant.token }), "query.limit");
  });

  test("the same Idempotency-Key creates one token and shows it again", async () => {
    const headers = { "idempotency-key": uniqueName("key") };
    const first = await target.post("/api-tokens", { description: "once" }, { ...session(), headers });
    const again = await target.post("/api-tokens", { description: "once" }, { ...session(), headers });
    expect(expectStatus(again, 201)).toEqual(expectStatus(first, 201));
    expectError(await target.post("/api-tokens", { description: "twice" }, { ...session(), headers }), "conflict");
  });
});
