// What every route has in common: headers, the order of checks, bodies, rate limits, and the pages about the API.
import { randomUUID } from "node:crypto";
import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Answer, expectError, expectInvalid, expectStatus, uniqueName } from "./client.ts";
import { codes } from "./codes.ts";
import { openSandboxHost, requireSandboxHost } from "./sandbox-host.ts";
import { openTarget, requireSettings, requireSuiteSettings, type Target, type Tenant } from "./target.ts";

const takesSettings = await requireSettings();
const hasSandboxHost = await requireSandboxHost();
const hasSuiteSettings = await requireSuiteSettings();

let target: Target;
let user: Tenant;

beforeAll(async () => {
  target = await openTarget();
  user = await target.newTenant();
});
afterAll(() => target?.close());

const mine = () => ({ token: user.token, workspace: user.workspace });

describe("requests and answers", () => {
  test("a valid X-Request-Id is kept, an invalid one is replaced", async () => {
    const given = "client.id_1-2";
    const answer = await target.get("/workspaces", { token: user.token, headers: { "x-request-id": given } });
    expect(answer.headers.get("x-request-id")).toBe(given);
    const failed = await target.get("/nowhere", { headers: { "x-request-id": given } });
    expect(failed.body.error.request_id).toBe(given);
    for (const bad of ["a b", "x".repeat(129), "a/b", "\u00e9"]) {
      const replaced = await target.get("/workspaces", { token: user.token, headers: { "x-request-id": bad } });
      expect(replaced.headers.get("x-request-id")).not.toBe(bad);
    }
  });

  test("a trailing slash is ignored, and HEAD works like GET", async () => {
    expectStatus(await target.get("/workspaces/", { token: user.token }), 200);
    expectStatus(await target.get("/sandboxes/", mine()), 200);
    const head = await target.send("HEAD", "/workspaces", { token: user.token });
    expect([head.status, head.text]).toEqual([200, ""]);
  });

  test("the authentication scheme is case-insensitive", async () => {
    expectStatus(await target.get("/workspaces", { headers: { authorization: `bearer ${user.token}` } }), 200);
    expectStatus(await target.get("/workspaces", { headers: { authorization: `BEARER ${user.token}` } }), 200);
  });

  test("unknown routes are not found, with or without a token", async () => {
    expectError(await target.get("/nowhere"), "not_found");
    expectError(await target.get("/nowhere", mine()), "not_found");
    expectError(await target.send("PUT", "/sandboxes", mine()), "not_found");
    expectError(await target.get("/%ff", mine()), "not_found");
  });

  test("checks run in a fixed order", async () => {
    const bad = { name: 1 };
    expectError(await target.post("/sandbox-images", bad), "unauthenticated");
    expectError(await target.post("/sandbox-images", bad, { token: "nonsense" }), "invalid_token");
    expectError(await target.post("/sandbox-images", bad, { token: user.token }), "validation_error");
    const good = { name: "n", image: "busybox" };
    expectError(await target.post("/sandbox-images", good, { token: user.token }), "workspace_required");
    expectError(
      await target.post("/sandbox-images", good, { token: user.token, workspace: randomUUID() }),
      "workspace_forbidden",
    );
    expectError(
      await target.get("/sandboxes/none", { token: user.token, workspace: randomUUID() }),
      "workspace_forbidden",
    );
  });

  test("one violation for each invalid field, in header, path and body", async () => {
    expectInvalid(
      await target.post("/sandbox-images?x=1", { name: 1 }, { token: user.token, workspace: "nonsense" }),
      "header.x-workspace-id",
      "body.name",
      "body.image",
    );
    expectInvalid(
      await target.put(`/workspaces/nonsense/members/${randomUUID()}`, { role: 1 }, { token: user.token }),
      "path.workspace_id",
      "body.role",
    );
  });

  test("malformed bodies are validation errors of the body", async () => {
    const cases = [
      { raw: "{" },
      { raw: '{"name":"a"}', headers: { "content-type": "text/plain" } },
      { raw: "[]" },
      { raw: "null" },
      { raw: '"text"' },
      { raw: "" },
      { raw: JSON.stringify({ name: "x".repeat(1_100_000) }) },
      { raw: '{"name":"a","__proto__":{"x":1}}', expected: 201 },
    ];
    for (const { raw, headers, expected } of cases) {
      const answer = await target.send("POST", "/workspaces", { token: user.token, raw, ...(headers && { headers }) });
      if (expected) expectStatus(answer, expected);
      else expectInvalid(answer, "body");
    }
  });

  test("unknown fields of a body are refused by name", async () => {
    const image = { name: "n", image: "busybox" };
    expectInvalid(
      await target.post("/sandbox-images", { ...image, memoryMb: 512, toString: 1, "": 1 }, mine()),
      "body.memoryMb",
      "body.toString",
      "body.",
    );
    // A time to live that the platform ignored would leave a sandbox that never ends.
    const provision = { image_id: randomUUID(), ttlSeconds: 60, memory_mb: 64, state: "ready" };
    expectInvalid(await target.post("/sandboxes/provision", provision, mine()), "body.memory_mb", "body.ttlSeconds");
    const many = Object.fromEntries(Array.from({ length: 50_000 }, (_, i) => [`f${i}`, 1]));
    const answer = await target.post("/workspaces", { name: "n", ...many }, { token: user.token });
    expectError(answer, "validation_error");
    expect(answer.body.error.details).toHaveLength(100);
  });

  test("a sign-in may have fields of the client's own", async () => {
    const body = { username: "nobody@example.com", password: "x", remember: true };
    expectError(await target.post("/auth/login", body), "invalid_credentials");
  });

  test("a record may be sent back as it was read", async () => {
    const image = await target.post("/sandbox-images", { name: uniqueName("own"), image: "busybox" }, mine());
    const path = `/sandbox-images/${image.body.id}`;
    const changed = await target.put(path, { ...image.body, name: uniqueName("changed"), id: "other" }, mine());
    expect(changed.body.id).toBe(image.body.id);
    expect(changed.body.created_at).toBe(image.body.created_at);
    const { body: workspace } = await target.get(`/workspaces/${user.workspace}`, mine());
    expectStatus(await target.put(`/workspaces/${user.workspace}`, workspace, mine()), 200);
    const { members } = (await target.get(`/workspaces/${user.workspace}/members`, mine())).body;
    const member = `/workspaces/${user.workspace}/members/${members[0].user_id}`;
    expectStatus(await target.put(member, members[0], mine()), 200);
  });

  test("a request that is not HTTP gets a clean answer", async ({ skip }) => {
    const { protocol, hostname, port } = new URL(target.url);
    skip(protocol !== "http:", "what takes TLS connections for the platform answers by itself");
    const socket = connect(Number(port || 80), hostname);
    socket.end("NONSENSE\r\n\r\n");
    let text = "";
    for await (const chunk of socket) text += chunk;
    expect(text).toMatch(/^HTTP\/1\.1 4\d\d /);
    expect(text).not.toMatch(/at .*\.ts:/);
  });

  test.runIf(hasSuiteSettings)("a configured origin may call from a browser, others may not", async () => {
    const preflight = await target.send("OPTIONS", "/sandboxes", {
      headers: {
        origin: "https://app.example.com",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-workspace-id,idempotency-key",
      },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers.get("access-control-allow-origin")).toBe("https://app.example.com");
    expect(preflight.headers.get("access-control-allow-headers")?.toLowerCase()).toContain("x-workspace-id");
    const allowed = await target.get("/sandboxes", { ...mine(), headers: { origin: "https://app.example.com" } });
    expect(allowed.headers.get("access-control-expose-headers")?.toLowerCase()).toContain("x-request-id");
    const denied = await target.get("/sandboxes", { ...mine(), headers: { origin: "https://evil.example" } });
    expect(denied.headers.get("access-control-allow-origin")).toBeNull();
  });

  test("an empty or overlong Idempotency-Key is invalid", async () => {
    for (const key of ["", "x".repeat(256)]) {
      const options = { token: user.token, headers: { "idempotency-key": key } };
      expectInvalid(await target.post("/workspaces", { name: "n" }, options), "header.idempotency-key");
    }
  });
});

describe("rate limits", () => {
  test("are in the headers of every answer", async () => {
    const answer = await target.get("/workspaces", { token: user.token });
    expect(Number(answer.headers.get("ratelimit-limit"))).toBeGreaterThan(0);
    expect(Number(answer.headers.get("ratelimit-remaining"))).toBeGreaterThanOrEqual(0);
    expect(Number(answer.headers.get("ratelimit-reset"))).toBeGreaterThanOrEqual(0);
  });

  test.runIf(takesSettings)("apply to each credential separately", async () => {
    const limited = await openTarget({ SANDGATE_RATE_LIMIT: "30" });
    try {
      const [one, two] = [await limited.newTenant(), await limited.newTenant()];
      let allowed = 0;
      while ((await limited.get("/workspaces", { token: one.token })).status === 200) allowed += 1;
      // On a slow machine a minute may end meanwhile.
      expect(allowed).toBeLessThanOrEqual(60);
      expectStatus(await limited.get("/workspaces", { token: two.token }), 200);
    } finally {
      await limited.close();
    }
  });
});

test.runIf(takesSettings && hasSandboxHost)("what fails and what is created in an hour has limits", async () => {
  const limited = await openTarget({ SANDGATE_WORKSPACE_FAILURES_PER_HOUR: "2", SANDGATE_CHANGE_RATE_LIMIT: "4" });
  const shortLived = await openSandboxHost().makeImage({ command: ["/bin/sh", "-c", "exit 0"] });
  try {
    const { reference: image } = shortLived;
    const registered = { name: "short", image, is_default: true, memory_mb: 256, readiness_port: 80 };
    const { id: image_id } = expectStatus(await limited.post("/sandbox-images", registered, limited.operator), 201);
    const tenant = await limited.newTenant();
    const waitMostAnHour = (answer: Answer, hint: RegExp) => {
      expectError(answer, "rate_limited");
      expect(answer.body.error.hint).toMatch(hint);
      expect(Number(answer.headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
      expect(Number(answer.headers.get("retry-after"))).toBeLessThanOrEqual(3_600);
    };
    for (const _ of [1, 2]) {
      const { id } = expectStatus(await limited.post("/sandboxes/provision", { image_id }, tenant), 201);
      expectError(await limited.post("/sandboxes/wait", { sandbox_id: id }, tenant), "provisioning_failed");
    }
    waitMostAnHour(
      await limited.post("/sandboxes/provision", { image_id }, tenant),
      /2 sandboxes failed within an hour/,
    );
    expectStatus(await limited.post("/workspaces", { name: "lab" }, tenant), 201);
    waitMostAnHour(await limited.post("/workspaces", { name: "lab" }, tenant), /you can still read, stop and delete/);
    const { sandboxes } = expectStatus(await limited.get("/sandboxes?state=failed", tenant), 200);
    expect(sandboxes).toHaveLength(2);
    expectStatus(await limited.delete(`/sandboxes/${sandboxes[0].id}`, tenant), 204);
  } finally {
    await limited.close();
    await shortLived.remove();
  }
});

test.runIf(takesSettings)("what a user, a workspace and the installation may have is capped", async () => {
  const capped = await openTarget({
    SANDGATE_USER_MAX_WORKSPACES: "2",
    SANDGATE_USER_MAX_API_TOKENS: "2",
    SANDGATE_WORKSPACE_MAX_IMAGES: "2",
    SANDGATE_WORKSPACE_MAX_MEMBERS: "1",
    SANDGATE_USER_MAX_MEMORY_MB: "256",
    SANDGATE_MAX_MEMORY_MB: "1",
  });
  try {
    const [one, two] = [await capped.newTenant(), await capped.newTenant()];
    const as = { token: one.token, workspace: one.workspace };
    const creations: [string, object, number, RegExp][] = [
      ["/workspaces", { name: "lab" }, 1, /may own 2 workspaces/],
      ["/api-tokens", { description: "ci" }, 2, /may have 2 API tokens/],
      ["/sandbox-images", { name: "tool", image: "alpine", memory_mb: 256 }, 2, /may have 2 images/],
      [`/workspaces/${one.workspace}/members`, { username: two.username, role: "member" }, 0, /may have 1 member/],
    ];
    for (const [path, body, free, hint] of creations) {
      const answers = await Promise.all(Array.from({ length: 4 }, () => capped.post(path, body, as)));
      expect(answers.filter(({ status }) => status === 201)).toHaveLength(free);
      for (const answer of answers.filter(({ status }) => status !== 201)) {
        expectError(answer, "conflict");
        expect(answer.body.error.hint).toMatch(hint);
      }
    }
    const { images } = expectStatus(await capped.get("/sandbox-images", as), 200);
    const small = images.find((image: { name: string }) => image.name === "tool").id;
    for (const [image_id, hint] of [
      [small, /installation is full/],
      [capped.defaultImageId, /A user's workspaces may hold 256 MB/],
    ] as const) {
      const refused = await capped.post("/sandboxes/provision", { image_id }, as);
      expectError(refused, "provisioning_failed");
      expect(refused.body.error.hint).toMatch(hint);
    }
  } finally {
    await capped.close();
  }
});

describe("about the API", () => {
  test("healthz and readyz need no token", async () => {
    expectStatus(await target.get("/healthz"), 200);
    const ready = expectStatus(await target.get("/readyz"), 200);
    // In one process the runtime of the sandbox service, in many the service itself.
    expect(JSON.stringify(ready.dependencies)).toContain("sandbox");
  });

  test("openapi.json describes every route in OpenAPI 3.1", async () => {
    const document = expectStatus(await target.get("/openapi.json"), 200);
    expect(document.openapi).toMatch(/^3\.1/);
    const operations = Object.entries(document.paths as Record<string, object>).flatMap(([path, item]) =>
      Object.keys(item).map(
        (method) => `${method.toUpperCase()} ${path.replace(/(.)\/$/, "$1").replace(/\{\w+\}/g, "{}")}`,
      ),
    );
    expect(operations).toEqual(
      expect.arrayContaining([
        "DELETE /workspaces/{}",
        "POST /sandbox-images",
        "GET /sandbox-images",
        "PUT /sandbox-images/{}",
        "GET /sandbox/monitoring/{}",
        "POST /api-tokens",
        "DELETE /api-tokens/{}",
        "GET /api-tokens",
        "POST /auth/login",
        "POST /auth/refresh",
        "GET /workspaces",
        "GET /sandboxes",
        "POST /sandboxes/provision",
        "POST /sandboxes/wait",
        "POST /registries",
        "GET /registries",
      ]),
    );
  });

  test("/docs is a page, and docs_url points at a page with an anchor for each code", async () => {
    expect((await target.get("/docs")).status).toBe(200);
    const { docs_url } = (await target.get("/nowhere")).body.error;
    const { pathname, hash } = new URL(docs_url);
    expect(hash).toBe("#not_found");
    const { status, text: page } = await target.get(pathname);
    expect(status).toBe(200);
    for (const code of Object.keys(codes)) {
      expect(page).toContain(`id="${code}"`);
    }
  });
});

test("a second user of a second workspace sees nothing of the first", async () => {
  const [one, two] = [await target.newTenant(), await target.newTenant()];
  const as = (tenant: Tenant) => ({ token: tenant.token, workspace: tenant.workspace });
  const image = expectStatus(await target.post("/sandbox-images", { name: "secret", image: "busybox" }, as(one)), 201);
  const workspace = expectStatus(await target.post("/workspaces", { name: "secret" }, as(one)), 201);
  const token = expectStatus(await target.post("/api-tokens", { description: uniqueName("secret") }, as(one)), 201);
  const seen: string[] = [];
  for (const path of ["/sandbox-images", "/sandboxes", "/registries"]) {
    seen.push((await target.get(path, as(two))).text);
    expectError(await target.get(path, { token: two.token, workspace: one.workspace }), "workspace_forbidden");
  }
  for (const path of ["/workspaces", "/api-tokens"]) {
    // The workspace header has no meaning here.
    seen.push((await target.get(path, { token: two.token, workspace: one.workspace })).text);
  }
  for (const id of [image.id, workspace.id, token.id, one.workspace]) {
    expect(seen.join()).not.toContain(id);
  }
});
