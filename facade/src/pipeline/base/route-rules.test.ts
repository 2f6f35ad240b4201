import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { FastifyInstance, RouteOptions } from "fastify";
import { afterAll, beforeAll, expect, test } from "vitest";
import { apiToken, openTestPlatform, sandboxMessage, type TestPlatform, workspaceId } from "../../test-platform.ts";
import { accessOfRoute, isChange } from "./route-rules.ts";

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
      identity: { confirmCaller: () => ({}) },
      sandbox: { getSandbox: () => ({ sandbox: sandboxMessage() }) },
      workspace: { checkAccountDeletion: () => ({}) },
    },
  });
  unsubscribe("fastify.initialization", watch);
});
afterAll(() => platform.close());

/** A value for each field that a body may have. */
const values: Readonly<Record<string, unknown>> = {
  cols: 80,
  command: ["true"],
  current_password: "correct horse",
  description: "for tests",
  enabled: true,
  from: "/a",
  image: "app",
  mode: "0644",
  name: "box",
  otp: "123456",
  password: "correct horse",
  path: "/a",
  port: 80,
  refresh_token: "r",
  role: "member",
  rows: 24,
  sandbox_id: "box",
  signal: "SIGTERM",
  to: "/b",
  token: "t",
  ttl_seconds: 3_600,
  url: "registry.test",
  username: "ada@example.test",
};

/** A body that the route accepts, if it has one. */
function payloadOf({ schema }: RouteOptions): { payload?: object } {
  const known = Object.keys((schema?.body as { properties: object } | undefined)?.properties ?? {});
  const payload = Object.fromEntries(known.filter((name) => name in values).map((name) => [name, values[name]]));
  return schema?.body ? { payload } : {};
}

test("the last RPC that a route calls is the one that it names", async () => {
  const headers = {
    authorization: `Bearer ${await platform.signAccessToken({ op: true })}`,
    "x-workspace-id": workspaceId,
    // The dashboard's session is for its own pages.
    origin: "https://api.test",
    cookie: "__Host-sandgate-session=refresh",
  };
  const named: Record<string, string> = {};
  const reached: Record<string, string> = {};
  for (const route of routes) {
    const { method, url, config, schema } = route;
    const rpc = config?.rules?.rpc;
    if (rpc === undefined || rpc === "none" || method === "HEAD") continue;
    // `inject` can't ask for an upgrade.
    if (Object.hasOwn(Object(schema?.response), 101)) continue;
    const name = `${method} ${url}`;
    named[name] = String(rpc);
    platform.state.called.length = 0;
    const path = url
      .replace(":workspace_id", workspaceId)
      .replace(":process_id", workspaceId)
      .replace(":port", "80")
      .replace(/:\w+/, "box")
      .replace("*", "/a")
      .replace(/(?<=\/files)(?:\/\w+)?$/, "$&?path=a");
    const response = await platform.app.inject({ method: String(method), url: path, headers, ...payloadOf(route) });
    reached[name] = String(platform.state.called.at(-1) ?? response.body);
  }
  expect(reached).toEqual(named);
  expect(Object.keys(named).length).toBeGreaterThan(30);
});

test("what creates or changes something counts against the limit of changes, and nothing else", () => {
  const counted = routes.flatMap(({ method, url, config }) =>
    config?.rules && isChange(config.rules, accessOfRoute(config.rules, url), String(method))
      ? [`${method} ${url}`]
      : [],
  );
  expect(counted.toSorted()).toEqual([
    "POST /api-tokens",
    "POST /auth/second-factor",
    "POST /auth/second-factor/confirm",
    "POST /auth/second-factor/recovery-codes",
    "POST /registries",
    "POST /sandbox-images",
    "POST /sandboxes/:sandbox_id/extend",
    "POST /sandboxes/:sandbox_id/ports",
    "POST /sandboxes/:sandbox_id/ports/:preview_id/links",
    "POST /sandboxes/provision",
    "POST /workspaces",
    "POST /workspaces/:workspace_id/members",
    "PUT /registries/:registry_id",
    "PUT /sandbox-images/:image_id",
    "PUT /workspaces/:workspace_id",
    "PUT /workspaces/:workspace_id/members/:user_id",
  ]);
});

test("the OpenAPI document, from which the conformance suite knows the routes, leaves out none but the way to the reference, its script and the dashboard's own", () => {
  const hidden = routes.filter(({ method, schema }) => method !== "HEAD" && schema?.hide);
  const own = hidden.filter(({ url }) => url.startsWith("/dashboard"));
  const others = hidden.filter((route) => !own.includes(route));
  expect(others.map(({ url }) => url).toSorted()).toEqual(["/", "/docs/reference.js"]);
  // Nobody's credential opens them: they trade a cookie for tokens, or are files for everybody.
  for (const { url, config } of own) {
    expect(config?.rules && accessOfRoute(config.rules, url).credential, url).toBe("none");
  }
});

test("an operator's routes are forbidden to others and to API tokens, and call no RPC for them", async () => {
  const operatorRoutes = routes.filter(({ url }) => url.startsWith("/admin/"));
  expect(operatorRoutes.length).toBeGreaterThan(4);
  const lacking = await platform.signAccessToken({ opNeeds: "second_factor" });
  for (const token of [await platform.signAccessToken(), lacking, apiToken]) {
    for (const route of operatorRoutes) {
      const { method, url } = route;
      platform.state.called.length = 0;
      const response = await platform.app.inject({
        method: String(method),
        url: url.replace(/:\w+/, "u"),
        headers: { authorization: `Bearer ${token}` },
        ...payloadOf(route),
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
