import { afterAll, beforeAll, expect, test } from "vitest";
import { openTestPlatform, type TestPlatform, workspaceId } from "../../test-platform.ts";

let platform: TestPlatform;
beforeAll(async () => {
  platform = await openTestPlatform();
});
afterAll(() => platform.close());

test.each([
  ["PUT", "/admin/users/{id}", "not_found"],
  ["DELETE", "/admin/users/{id}", "not_found"],
  ["DELETE", "/admin/users/{id}/sessions", "not_found"],
  ["DELETE", "/admin/users/{id}/api-tokens", "not_found"],
  ["DELETE", "/admin/users/{id}/second-factor", "not_found"],
  ["DELETE", "/admin/sandboxes/{id}", "sandbox_not_found"],
  ["DELETE", "/auth/sessions/{id}", "not_found"],
  ["DELETE", "/auth/identities/{id}", "not_found"],
  ["DELETE", `/workspaces/${workspaceId}/members/{id}`, "member_not_found"],
  ["GET", "/sandboxes/{id}", "sandbox_not_found"],
  ["GET", "/sandbox-images/{id}", "image_not_found"],
  ["GET", "/registries/{id}", "registry_not_found"],
] as const)("an id that is longer than any is not found: %s %s", async (method, path, code) => {
  const { body } = await platform.app.inject({
    method,
    url: path.replace("{id}", "x".repeat(65)),
    headers: {
      authorization: `Bearer ${await platform.signAccessToken({ op: true })}`,
      "x-workspace-id": workspaceId,
    },
    ...(method === "PUT" && { payload: { enabled: true } }),
  });
  expect(JSON.parse(body).error.code).toBe(code);
});
