// Every error code once. `internal_error` and `upstream_error` need a fault behind the API: test/fault injects it.
import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { expectError, expectStatus, uniqueName } from "./client.ts";
import { requireSandboxHost } from "./sandbox-host.ts";
import { openTarget, requireSettings, requireSuiteSettings, type Target, type Tenant } from "./target.ts";

const takesSettings = await requireSettings();
const hasSuiteSettings = await requireSuiteSettings();
const hasSandboxHost = await requireSandboxHost();

let target: Target;
let owner: Tenant;
let other: Tenant;

beforeAll(async () => {
  target = await openTarget();
  [owner, other] = [await target.newTenant(), await target.newTenant()];
});
afterAll(() => target?.close());

const mine = () => ({ token: owner.token, workspace: owner.workspace });

test("unauthenticated", async () => {
  expectError(await target.get("/workspaces"), "unauthenticated");
  expectError(await target.get("/workspaces", { headers: { authorization: "Basic dTpw" } }), "unauthenticated");
  expectError(await target.get("/workspaces", { headers: { authorization: "Bearer " } }), "unauthenticated");
});

test("invalid_token", async () => {
  expectError(await target.get("/workspaces", { token: "nonsense" }), "invalid_token");
  expectError(await target.get("/workspaces", { token: `${owner.token.slice(0, -3)}AAA` }), "invalid_token");
  const { token } = expectStatus(
    await target.post("/api-tokens/", { description: "short-lived" }, { token: owner.token }),
    201,
  );
  expectStatus(await target.get("/workspaces", { token }), 200);
  expectStatus(await target.delete(`/api-tokens/${token}`, { token: owner.token }), 204);
  await expect.poll(async () => (await target.get("/workspaces", { token })).body?.error?.code).toBe("invalid_token");
});

test("invalid_credentials", async () => {
  const answer = await target.post("/auth/login", {
    username: owner.username,
    password: "wrong wrong",
    recaptchaToken: "",
  });
  expectError(answer, "invalid_credentials");
  const unknown = await target.post("/auth/login", {
    username: "nobody@example.com",
    password: "wrong wrong",
    recaptchaToken: "",
  });
  expectError(unknown, "invalid_credentials");
  expect(unknown.body.error.message).toBe(answer.body.error.message);
});

test("email_not_verified", async () => {
  const username = `${uniqueName("unverified")}@example.com`;
  const password = "correct horse battery";
  expectStatus(await target.post("/auth/register", { username, password, recaptchaToken: "" }), 201);
  expectError(await target.post("/auth/login", { username, password, recaptchaToken: "" }), "email_not_verified");
  expectError(
    await target.post("/auth/login", { username, password: "wrong wrong", recaptchaToken: "" }),
    "invalid_credentials",
  );
});

test("forbidden", async () => {
  const { token } = expectStatus(await target.post("/api-tokens/", { description: "ci" }, { token: owner.token }), 201);
  expectError(await target.post("/api-tokens/", { description: "another" }, { token }), "forbidden");
  expectError(
    await target.post("/sandbox-images", { name: "d", image: "busybox", is_default: true }, mine()),
    "forbidden",
  );
});

test("insufficient_role", async () => {
  const team = expectStatus(await target.post("/workspaces", { name: "team" }, { token: owner.token }), 201);
  const members = `/workspaces/${team.id}/members`;
  expectStatus(await target.post(members, { username: other.username, role: "member" }, { token: owner.token }), 201);
  const asMember = { token: other.token, workspace: team.id };
  expectError(await target.post("/sandbox-images", { name: "i", image: "busybox" }, asMember), "insufficient_role");
  expectError(await target.delete(`/workspaces/${team.id}`, { token: other.token }), "insufficient_role");
});

test("workspace_required", async () => {
  expectError(await target.get("/sandbox-images", { token: owner.token }), "workspace_required");
  expectError(await target.get("/sandboxes", { token: owner.token, workspace: "" }), "workspace_required");
});

test("workspace_forbidden", async () => {
  for (const workspace of [owner.workspace, randomUUID()]) {
    expectError(await target.get("/sandboxes", { token: other.token, workspace }), "workspace_forbidden");
  }
  expectError(await target.get(`/workspaces/${owner.workspace}`, { token: other.token }), "workspace_forbidden");
});

test("workspace_not_found", async () => {
  expectError(await target.delete(`/workspaces/${randomUUID()}`, { token: owner.token }), "workspace_not_found");
});

test("member_not_found", async () => {
  const members = `/workspaces/${owner.workspace}/members`;
  expectError(await target.delete(`${members}/${randomUUID()}`, { token: owner.token }), "member_not_found");
  expectError(
    await target.post(members, { username: "nobody@example.com", role: "member" }, { token: owner.token }),
    "member_not_found",
  );
});

test("sandbox_not_found, whether it is another's or none at all", async () => {
  const provisioned = await target.post("/sandboxes/provision", { image_id: target.defaultImageId }, mine());
  const { id, name } = expectStatus(provisioned, 201);
  const answers = await Promise.all(
    [id, name, randomUUID(), "no-such-name"].map((which) =>
      target.get(`/sandboxes/${which}`, { token: other.token, workspace: other.workspace }),
    ),
  );
  for (const answer of answers) {
    expectError(answer, "sandbox_not_found");
    expect(answer.body.error.message).toBe(answers[0]?.body.error.message);
  }
  expectStatus(await target.delete(`/sandboxes/${id}`, mine()), 204);
});

test("sandbox_name_conflict", async () => {
  const body = { image_id: target.defaultImageId, name: uniqueName("taken") };
  const { id } = expectStatus(await target.post("/sandboxes/provision", body, mine()), 201);
  expectError(await target.post("/sandboxes/provision", body, mine()), "sandbox_name_conflict");
  expectStatus(await target.delete(`/sandboxes/${id}`, mine()), 204);
});

test.runIf(hasSuiteSettings && hasSandboxHost)("sandbox_not_ready and provisioning_failed", async () => {
  // Nothing listens on this port, so it stays unready until its time is over.
  const { id: imageId } = expectStatus(
    await target.post(
      "/sandbox-images",
      { name: "never ready", image: target.defaultReference, is_default: true, readiness_port: 9 },
      { token: target.operator.token, workspace: target.operator.workspace },
    ),
    201,
  );
  const { id } = expectStatus(await target.post("/sandboxes/provision", { image_id: imageId }, mine()), 201);
  expectError(
    await target.post("/sandboxes/wait", { sandbox_id: id, timeout_seconds: 1 }, mine()),
    "sandbox_not_ready",
  );
  const failed = await target.post("/sandboxes/wait", { sandbox_id: id, timeout_seconds: 240 }, mine());
  expectError(failed, "provisioning_failed");
});

test("image_not_found", async () => {
  expectError(await target.get(`/sandbox-images/${randomUUID()}`, mine()), "image_not_found");
  expectError(await target.post("/sandboxes/provision", { image_id: "no-such-image" }, mine()), "image_not_found");
});

test("image_disabled", async () => {
  const body = { name: "off", image: "docker.io/library/busybox:1.36", enabled: false };
  const { id } = expectStatus(await target.post("/sandbox-images", body, mine()), 201);
  expectError(await target.post("/sandboxes/provision", { image_id: id }, mine()), "image_disabled");
});

test("image_immutable", async () => {
  const path = `/sandbox-images/${target.defaultImageId}`;
  expectError(await target.put(path, { name: "mine now" }, mine()), "image_immutable");
  expectError(await target.delete(path, mine()), "image_immutable");
});

test("registry_not_found", async () => {
  expectError(await target.get(`/registries/${randomUUID()}`, mine()), "registry_not_found");
  const body = { name: "i", image: "registry.example.com/a", registry_id: randomUUID() };
  expectError(await target.post("/sandbox-images", body, mine()), "registry_not_found");
});

test("api_key_not_found", async () => {
  const { token, id } = expectStatus(
    await target.post("/api-tokens/", { description: "another's" }, { token: other.token }),
    201,
  );
  for (const which of [token, id, randomUUID(), "sgt_nonsense"]) {
    expectError(await target.delete(`/api-tokens/${which}`, { token: owner.token }), "api_key_not_found");
  }
  expectStatus(await target.get("/workspaces", { token }), 200);
});

test("validation_error", async () => {
  expectError(await target.post("/sandbox-images", { name: 1 }, mine()), "validation_error");
});

test("not_found", async () => {
  expectError(await target.get("/no/such/route"), "not_found");
  expectError(await target.send("PATCH", "/workspaces", { token: owner.token }), "not_found");
});

test("conflict", async () => {
  const body = { username: owner.username, role: "member" };
  const members = `/workspaces/${owner.workspace}/members`;
  expectError(await target.post(members, body, { token: owner.token }), "conflict");
});

test.runIf(takesSettings)("rate_limited, which no attack brings on a user elsewhere", async () => {
  const limited = await openTarget({ SANDGATE_SIGNIN_RATE_LIMIT: "5", SANDGATE_TRUSTED_PROXIES: "127.0.0.0/8,::1" });
  try {
    const { username, password } = limited.operator;
    const signIn = (address: string, given: string) =>
      limited.post(
        "/auth/login",
        { username, password: given, recaptchaToken: "" },
        { headers: { "x-forwarded-for": address } },
      );
    const answers = [];
    for (let i = 0; i < 7; i++) {
      answers.push(await signIn("203.0.113.1", "wrong wrong"));
    }
    expect(answers.slice(0, 5).map(({ status }) => status)).toEqual([401, 401, 401, 401, 401]);
    for (const answer of answers.slice(5)) {
      expectError(answer, "rate_limited");
    }
    for (let i = 0; i < 10; i++) {
      await signIn(`198.51.${i}.1`, "wrong wrong");
    }
    expectStatus(await signIn("192.0.2.1", password), 200);
  } finally {
    await limited.close();
  }
});
