import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { setImmediate } from "node:timers/promises";
import { inspect } from "node:util";
import { auditActions } from "@sandgate/kit/base/audit-actions";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { Credential, Permission, Role } from "@sandgate/proto/common/v1/access";
import type { FastifyInstance, RouteOptions } from "fastify";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  apiToken,
  boundApiToken,
  foreignWorkspaceId,
  openTestPlatform,
  type TestPlatform,
  userId,
  workspaceId,
} from "../../test-platform.ts";
import { accessOfRoute } from "../base/route-rules.ts";

const routes: RouteOptions[] = [];
let platform: TestPlatform;
let session: string;
const registryId = "01900000-0000-7000-8000-0000000000cc";

beforeAll(async () => {
  const watch = (message: unknown) => {
    const { fastify } = message as { fastify: FastifyInstance };
    fastify.addHook("onRoute", (route) => void routes.push(route));
  };
  subscribe("fastify.initialization", watch);
  platform = await openTestPlatform({
    env: { SANDGATE_RATE_LIMIT: "0", SANDGATE_SIGNIN_RATE_LIMIT: "0" },
    handlers: {
      identity: {
        signIn: () => {
          throw new DomainError("INVALID_CREDENTIALS", "Wrong name or password.");
        },
        listApiTokens: () => ({ apiTokens: [] }),
        finishSso: ({ state }) => {
          if (state === "unknown") throw new DomainError("INVALID_TOKEN", "This sign-in is unknown.");
          return { redirectUri: "https://app.test/", outcome: { case: "failure", value: state.toUpperCase() } };
        },
      },
      imageRegistry: { listRegistries: () => ({ registries: [] }), deleteRegistry: () => ({}) },
      sandbox: { listSandboxes: () => ({ sandboxes: [] }) },
    },
  });
  unsubscribe("fastify.initialization", watch);
  session = await platform.signAccessToken({ sid: "s7" });
});
afterAll(() => platform.close());

/** Gives the user another role, which the facade no longer remembers. */
async function setRole(role: Role): Promise<void> {
  platform.state.role = role;
  platform.bus.signal("workspace.membership", `${workspaceId} ${userId}`);
  await setImmediate();
}

/** Sends a request and returns what it adds to the audit log, by its request id. */
async function entriesOf(
  method: "GET" | "POST" | "DELETE",
  url: string,
  o: { token?: string; workspace?: string; payload?: object } = {},
) {
  const response = await platform.app.inject({
    method,
    url,
    headers: {
      authorization: `Bearer ${o.token ?? session}`,
      ...(o.workspace && { "x-workspace-id": o.workspace }),
    },
    ...(o.payload && { payload: o.payload }),
    remoteAddress: "192.0.2.44",
  });
  const requestId = response.headers["x-request-id"];
  return () => platform.state.audited.filter((entry) => entry.requestId === requestId);
}

test("a member's refused request is in the workspace's log, with who, from where, and the error code", async () => {
  await setRole(Role.MEMBER);
  const entries = await entriesOf("DELETE", `/registries/${registryId}`, { workspace: workspaceId });
  await expect.poll(entries).toMatchObject([
    {
      workspaceId,
      actorId: userId,
      credential: Credential.SESSION,
      credentialId: "s7",
      address: "192.0.2.44",
      action: "registry.delete",
      targetType: "registry",
      targetId: registryId,
      outcome: "insufficient_role",
      count: 1,
    },
  ]);
  await setRole(Role.OWNER);
});

test("what an API token lacks the permission for is in the workspace's log, too", async () => {
  platform.state.tokenPermissions = [Permission.READ];
  const entries = await entriesOf("DELETE", `/registries/${registryId}`, { token: apiToken, workspace: workspaceId });
  const refused = { action: "registry.delete", credential: Credential.API_TOKEN, outcome: "forbidden" };
  await expect.poll(entries).toMatchObject([{ ...refused, workspaceId, targetId: registryId }]);
  platform.state.tokenPermissions = [];
  platform.bus.signal("identity.api_tokens.revoked", "id");
});

test("what somebody tries in another's workspace is for operators alone", async () => {
  const byHeader = await entriesOf("GET", "/sandboxes", { workspace: foreignWorkspaceId });
  const byPath = await entriesOf("DELETE", `/workspaces/${foreignWorkspaceId}`, {});
  const bound = await entriesOf("GET", "/registries", { token: boundApiToken, workspace: foreignWorkspaceId });
  for (const [entries, action] of [
    [byHeader, "sandbox.list"],
    [byPath, "workspace.delete"],
    [bound, "registry.list"],
  ] as const) {
    await expect
      .poll(entries)
      .toMatchObject([
        { workspaceId: "", actorId: userId, action, targetType: "workspace", targetId: foreignWorkspaceId },
      ]);
    expect(entries()).toMatchObject([{ outcome: "workspace_forbidden" }]);
  }
});

test("an operator's route that is refused is in the log", async () => {
  const entries = await entriesOf("GET", "/admin/users", { token: apiToken });
  await expect.poll(entries).toMatchObject([
    {
      action: "user.list",
      outcome: "forbidden",
      credential: Credential.API_TOKEN,
      credentialId: `id-${apiToken}`,
      workspaceId: "",
    },
  ]);
});

test("a failed sign-in names the account that it was for, and never what was typed", async () => {
  const signIn = (username: string) =>
    entriesOf("POST", "/auth/login", { payload: { username, password: "a secret password" } });
  const known = await signIn(" ADA@example.test");
  const unknown = await signIn("a password in the wrong field");
  await expect.poll(known).toMatchObject([
    {
      action: "user.sign_in",
      outcome: "invalid_credentials",
      actorId: "",
      targetType: "user",
      targetId: userId,
      address: "192.0.2.44",
    },
  ]);
  await expect.poll(unknown).toMatchObject([{ action: "user.sign_in", targetType: "", address: "192.0.2.44" }]);
  expect(inspect(platform.state.audited, { depth: null })).not.toMatch(/secret|wrong field|example\.test/);
});

test("a sign-in by a provider that fails is in the log, whether or not the browser is sent on", async () => {
  const callback = (state: string) => entriesOf("GET", `/auth/sso/google/callback?state=${state}&code=a-secret-code`);
  const forbidden = await callback("forbidden");
  const unknown = await callback("unknown");
  const about = { action: "user.sign_in", targetType: "", address: "192.0.2.44", actorId: "" };
  await expect.poll(forbidden).toMatchObject([{ ...about, outcome: "forbidden" }]);
  await expect.poll(unknown).toMatchObject([{ ...about, outcome: "invalid_token" }]);
  expect(inspect(platform.state.audited, { depth: null })).not.toContain("secret-code");
});

test("reads of what secrets there are are in the log, other reads are not", async () => {
  const registries = await entriesOf("GET", "/registries", { workspace: workspaceId });
  const tokens = await entriesOf("GET", "/api-tokens");
  const sandboxes = await entriesOf("GET", "/sandboxes", { workspace: workspaceId });
  await expect.poll(registries).toMatchObject([{ action: "registry.list", outcome: "success", workspaceId }]);
  await expect.poll(tokens).toMatchObject([{ action: "api_token.list", outcome: "success", actorId: userId }]);
  expect(sandboxes()).toEqual([]);
});

test("neither a token nor an id that isn't one comes into the log by a path", async () => {
  await setRole(Role.MEMBER);
  // Of a session of its own, as what is alike is counted.
  const other = await platform.signAccessToken({ sid: "s8" });
  const made = await entriesOf("DELETE", "/registries/hunter2", { token: other, workspace: workspaceId });
  const token = await entriesOf("DELETE", "/api-tokens/sgt_hunter2", { token: apiToken });
  await expect.poll(made).toMatchObject([{ targetType: "", targetId: "" }]);
  await expect.poll(token).toMatchObject([{ action: "api_token.revoke", outcome: "forbidden", targetType: "" }]);
  await setRole(Role.OWNER);
});

test("a request with no valid credential, or a wrong one of its fields, is not in the log", async () => {
  const invalid = await entriesOf("GET", "/sandboxes", { token: "nonsense", workspace: workspaceId });
  const bad = await entriesOf("GET", "/sandboxes?limit=x", { workspace: workspaceId });
  const last = await entriesOf("GET", "/registries", { token: apiToken, workspace: workspaceId });
  await expect.poll(last).toHaveLength(1);
  expect([...invalid(), ...bad()]).toEqual([]);
});

test("every route that can be refused to somebody has its word for the log", () => {
  const words = new Set<string>(auditActions);
  for (const { method, url, config } of routes) {
    const rules = config?.rules;
    if (!rules || rules.rpc === "none") continue;
    const { credential } = accessOfRoute(rules, url);
    const word = rules.audit;
    if (credential !== "none") expect(word, `${method} ${url}: audit in its rules`).toBeDefined();
    if (word !== undefined) expect(words).toContain(word);
  }
});
