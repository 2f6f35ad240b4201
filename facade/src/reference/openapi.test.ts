import { gunzipSync } from "node:zlib";
import { publicReasons } from "@sandgate/kit/base/reasons";
import { Validator } from "@seriousme/openapi-schema-validator";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openTestPlatform, type TestPlatform } from "../test-platform.ts";

interface OpenApiDocument {
  openapi: string;
  paths: Record<string, Record<string, OpenApiOperation>>;
}

interface OpenApiOperation {
  summary?: string;
  security?: Record<string, string[]>[];
  responses: Record<string, { content?: Record<string, { schema?: { $ref?: string } }> }>;
}

let platform: TestPlatform;
let document: OpenApiDocument;

async function readDocument() {
  const response = await platform.app.inject("/openapi.json");
  expect(response.headers["content-type"]).toBe("application/json; charset=utf-8");
  const parsed: OpenApiDocument = response.json();
  return parsed;
}

beforeAll(async () => {
  platform = await openTestPlatform();
  document = await readDocument();
});
afterAll(() => platform.close());

test("is a valid OpenAPI 3.1 document", async () => {
  expect(document.openapi).toBe("3.1.0");
  const { valid, errors } = await new Validator().validate({ ...structuredClone(document) });
  expect(errors).toBeUndefined();
  expect(valid).toBe(true);
});

test("has every route of the app, and no other", () => {
  const documented = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  );
  expect(documented.toSorted()).toEqual([
    "DELETE /admin/sandboxes/{sandbox_id}",
    "DELETE /admin/users/{user_id}",
    "DELETE /admin/users/{user_id}/api-tokens",
    "DELETE /admin/users/{user_id}/second-factor",
    "DELETE /admin/users/{user_id}/sessions",
    "DELETE /api-tokens/{token}",
    "DELETE /auth/account",
    "DELETE /auth/second-factor",
    "DELETE /auth/sessions",
    "DELETE /auth/sessions/{session_id}",
    "DELETE /registries/{registry_id}",
    "DELETE /sandbox-images/{image_id}",
    "DELETE /sandboxes/{sandbox_id}",
    "DELETE /workspaces/{workspace_id}",
    "DELETE /workspaces/{workspace_id}/members/{user_id}",
    "GET /admin/audit-log",
    "GET /admin/sandboxes",
    "GET /admin/users",
    "GET /api-tokens",
    "GET /auth/password/reset",
    "GET /auth/second-factor",
    "GET /auth/sessions",
    "GET /auth/sso/{provider}",
    "GET /auth/sso/{provider}/callback",
    "GET /auth/verify-email",
    "GET /docs",
    "GET /docs/errors",
    "GET /healthz",
    "GET /openapi.json",
    "GET /readyz",
    "GET /registries",
    "GET /registries/{registry_id}",
    "GET /sandbox-images",
    "GET /sandbox-images/{image_id}",
    "GET /sandbox/monitoring/{sandbox_id}",
    "GET /sandbox/monitoring/{sandbox_id}/stream",
    "GET /sandboxes",
    "GET /sandboxes/{sandbox_id}",
    "GET /workspaces",
    "GET /workspaces/{workspace_id}",
    "GET /workspaces/{workspace_id}/audit-log",
    "GET /workspaces/{workspace_id}/members",
    "POST /api-tokens",
    "POST /auth/login",
    "POST /auth/logout",
    "POST /auth/password",
    "POST /auth/password/forgot",
    "POST /auth/password/reset",
    "POST /auth/refresh",
    "POST /auth/register",
    "POST /auth/resend-verification",
    "POST /auth/second-factor",
    "POST /auth/second-factor/confirm",
    "POST /auth/second-factor/recovery-codes",
    "POST /auth/verify-email",
    "POST /registries",
    "POST /sandbox-images",
    "POST /sandboxes/provision",
    "POST /sandboxes/wait",
    "POST /workspaces",
    "POST /workspaces/{workspace_id}/members",
    "PUT /admin/users/{user_id}",
    "PUT /registries/{registry_id}",
    "PUT /sandbox-images/{image_id}",
    "PUT /workspaces/{workspace_id}",
    "PUT /workspaces/{workspace_id}/members/{user_id}",
  ]);
  const routed = documented.filter((line) => {
    const [method = "", path = ""] = line.split(" ");
    return platform.app.hasRoute({ method: method as "GET", url: path.replace(/\{(\w+)\}/g, ":$1") });
  });
  expect(routed).toEqual(documented);
});

test("describes every operation with its errors and its security", () => {
  for (const [path, methods] of Object.entries(document.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const name = `${method} ${path}`;
      expect(operation.summary, name).toBeTypeOf("string");
      const { responses } = operation;
      expect(
        Object.keys(responses).some((status) => /^[23]/.test(status)),
        name,
      ).toBe(true);
      const sessionOnly =
        ["/api-tokens", "/auth/sessions", "/auth/account", "/auth/second-factor", "/admin/"].some((start) =>
          path.startsWith(start),
        ) || name === "post /auth/password";
      const open =
        !sessionOnly &&
        (path.startsWith("/auth/") || ["/docs", "/docs/errors", "/openapi.json", "/healthz", "/readyz"].includes(path));
      expect(operation.security ?? [], name).toHaveLength(open ? 0 : sessionOnly ? 1 : 2);
      for (const [status, response] of Object.entries(responses)) {
        if (Number(status) < 400) continue;
        const listed = name === "delete /workspaces/{workspace_id}" && status === "422";
        expect(response.content?.["application/json"]?.schema?.$ref, `${name} ${status}`).toBe(
          `#/components/schemas/${listed ? "ListedErrors" : "Error"}`,
        );
      }
      if (!open) expect(Object.keys(responses), name).toEqual(expect.arrayContaining(["401", "429", "500", "502"]));
    }
  }
});

test("has a page to read, which needs nothing from another server", async () => {
  const page = await platform.app.inject("/docs/");
  expect(page.headers["content-type"]).toBe("text/html; charset=utf-8");
  const policy = String(page.headers["content-security-policy"]);
  expect(policy).toContain("default-src 'none'");
  const nonce = /script-src 'nonce-([^']+)'/.exec(policy)?.[1];
  expect(page.body.match(/<script nonce="([^"]+)"/g)).toEqual(Array(2).fill(`<script nonce="${nonce}"`));
  // Under the public address's path prefix.
  expect(page.body).toContain(' src="/v/docs/reference.js"');
  expect(page.body).toContain('"url":"/v/openapi.json"');
  expect(page.body).not.toMatch(/https?:\/\//);
  const url = "/v/docs/reference.js";
  const plain = await platform.app.inject(url);
  expect(plain.headers["content-type"]).toBe("text/javascript; charset=utf-8");
  expect(plain.body).toContain("createApiReference");
  const compressed = await platform.app.inject({ url, headers: { "accept-encoding": "gzip" } });
  expect(gunzipSync(compressed.rawPayload).equals(plain.rawPayload)).toBe(true);
});

test("has a page of errors, with an anchor for each code that docs_url can name, and of why sandboxes end", async () => {
  const response = await platform.app.inject("/docs/errors/");
  expect(response.headers["content-type"]).toBe("text/html; charset=utf-8");
  expect(response.headers["content-security-policy"]).toContain("default-src 'none'");
  expect(publicReasons).toHaveLength(25);
  for (const code of publicReasons) expect(response.body).toContain(`id="${code.toLowerCase()}"`);
  expect(response.body).toContain('id="sandbox-unschedulable"');
});

test("tells its own health, and that of what it needs", async () => {
  expect((await platform.app.inject("/healthz")).json()).toEqual({ status: "ok" });
  expect((await platform.app.inject("/readyz")).json()).toEqual({ status: "ready", dependencies: {} });
});
