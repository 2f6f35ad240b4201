import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { FastifyInstance, RouteOptions } from "fastify";
import { afterAll, beforeAll, expect, test } from "vitest";
import { apiToken, openTestPlatform, sandboxMessage, type TestPlatform, workspaceId } from "../../test-platform.ts";

const routes: RouteOptions[] = [];
let platform: TestPlatform;

beforeAll(async () => {
  // Fastify's own channel: the routes are complete before the facade gives its app away.
  const watch = (message: unknown) => {
    const { fastify } = message as { fastify: FastifyInstance };
    fastify.addHook("onRoute", (route) => void routes.push(route));
  };
  subscribe("fastify.initialization", watch);
  platform = await openTestPlatform({
    env: { SANDGATE_RATE_LIMIT: "0", SANDGATE_SIGNIN_RATE_LIMIT: "0" },
    handlers: {
      sandbox: { getSandbox: () => ({ sandbox: sandboxMessage() }) },
      workspace: { checkAccountDeletion: () => ({}) },
    },
  });
  unsubscribe("fastify.initialization", watch);
});
afterAll(() => platform.close());

/** A body that every route accepts, since fields that a route doesn't know are ignored. */
const payload = {
  enabled: true,
  current_password: "correct horse",
  description: "for tests",
  image: "app",
  image_id: "image-1",
  name: "box",
  otp: "123456",
  password: "correct horse",
  refresh_token: "r",
  role: "member",
  sandbox_id: "box",
  token: "t",
  url: "registry.test",
  username: "ada@example.test",
};

test("the last RPC that a route calls is the one that it names", async () => {
  const headers = {
    authorization: `Bearer ${await platform.signAccessToken({ op: true })}`,
    "x-workspace-id": workspaceId,
  };
  const named: Record<string, string> = {};
  const reached: Record<string, string> = {};
  for (const { method, url, config } of routes) {
    const rpc = config?.rules?.rpc;
    if (rpc === undefined || rpc === "none" || method === "HEAD") continue;
    const name = `${method} ${url}`;
    named[name] = String(rpc);
    platform.state.called.length = 0;
    const path = url.replace(":workspace_id", workspaceId).replace(/:\w+/, "box");
    const body =
      method === "POST" || method === "PUT" || ["/auth/account", "/auth/second-factor"].includes(url)
        ? { payload }
        : {};
    const response = await platform.app.inject({ method: String(method), url: path, headers, ...body });
    reached[name] = String(platform.state.called.at(-1) ?? response.body);
  }
  expect(reached).toEqual(named);
  expect(Object.keys(named).length).toBeGreaterThan(30);
});

test("the OpenAPI document, from which the conformance suite knows the routes, leaves out none but the reference's script", () => {
  const hidden = routes.filter(({ method, schema }) => method !== "HEAD" && schema?.hide);
  expect(hidden.map(({ url }) => url)).toEqual(["/docs/reference.js"]);
});

test("an operator's routes are forbidden to others and to API tokens, and call no RPC for them", async () => {
  const operatorRoutes = routes.filter(({ url }) => url.startsWith("/admin/"));
  expect(operatorRoutes.length).toBeGreaterThan(4);
  const lacking = await platform.signAccessToken({ opNeeds: "second_factor" });
  for (const token of [await platform.signAccessToken(), lacking, apiToken]) {
    for (const { method, url } of operatorRoutes) {
      platform.state.called.length = 0;
      const response = await platform.app.inject({
        method: String(method),
        url: url.replace(/:\w+/, "u"),
        headers: { authorization: `Bearer ${token}` },
        ...(method === "PUT" && { payload }),
      });
      expect(response.statusCode, `${method} ${url}`).toBe(403);
      if (method !== "HEAD") {
        const { code, hint } = response.json().error;
        expect(code).toBe("forbidden");
        if (token === lacking) expect(hint).toContain("POST /auth/second-factor");
      }
      expect(
        platform.state.called.filter(
          ({ parent, name }) => parent.typeName.includes("identity") && !/SigningKeys|VerifyApiToken/.test(name),
        ),
      ).toEqual([]);
    }
  }
});
