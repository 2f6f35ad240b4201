import { gunzipSync } from "node:zlib";
import { publicReasons } from "@sandgate/kit/base/reasons";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openTestPlatform, type TestPlatform } from "../test-platform.ts";

interface OpenApiDocument {
  openapi: string;
  info: { description: string };
  tags: { name: string }[];
  components: { schemas: Record<string, { properties: Record<string, object> }> };
  paths: Record<string, Record<string, OpenApiOperation>>;
}

interface OpenApiOperation {
  operationId: string;
  summary?: string;
  description?: string;
  tags: string[];
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

test("begins with a quick start and Sandboxes, and has a component for each record", () => {
  expect(document.openapi).toBe("3.1.0");
  expect(document.info.description).toContain("/sandboxes/provision");
  expect(document.tags[0]?.name).toBe("Sandboxes");
  const tagged = Object.values(document.paths).flatMap((methods) => Object.values(methods).flatMap(({ tags }) => tags));
  expect(new Set(tagged)).toEqual(new Set(document.tags.map(({ name }) => name)));
  const listed = document.paths["/sandboxes"]?.get?.responses["200"]?.content?.["application/json"]?.schema;
  expect(listed).toMatchObject({ $ref: "#/components/schemas/SandboxList" });
  expect(document.components.schemas.SandboxList?.properties.sandboxes).toMatchObject({
    items: { $ref: "#/components/schemas/Sandbox" },
  });
});

test("has every route of the app and no other, by the names that clients' methods have", () => {
  const documented = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { operationId }]) => `${method.toUpperCase()} ${path}: ${operationId}`),
  );
  expect(documented.toSorted()).toEqual([
    "DELETE /admin/sandboxes/{sandbox_id}: stopAnySandbox",
    "DELETE /admin/users/{user_id}/api-tokens: revokeUserApiTokens",
    "DELETE /admin/users/{user_id}/second-factor: deleteUserSecondFactor",
    "DELETE /admin/users/{user_id}/sessions: endUserSessions",
    "DELETE /admin/users/{user_id}: deleteUser",
    "DELETE /api-tokens/{token}: revokeApiToken",
    "DELETE /api-tokens: revokeApiTokens",
    "DELETE /auth/account: deleteAccount",
    "DELETE /auth/identities/{identity_id}: deleteIdentity",
    "DELETE /auth/second-factor: deleteSecondFactor",
    "DELETE /auth/sessions/{session_id}: endSession",
    "DELETE /auth/sessions: endOtherSessions",
    "DELETE /registries/{registry_id}: deleteRegistry",
    "DELETE /sandbox-images/{image_id}: deleteImage",
    "DELETE /sandboxes/{sandbox_id}/files: deleteEntry",
    "DELETE /sandboxes/{sandbox_id}/ports/{port}/http/{rest}: deleteOnPort",
    "DELETE /sandboxes/{sandbox_id}/ports/{preview_id}: deletePreview",
    "DELETE /sandboxes/{sandbox_id}/processes/{process_id}: endProcess",
    "DELETE /sandboxes/{sandbox_id}: stopSandbox",
    "DELETE /workspaces/{workspace_id}/members/{user_id}: removeMember",
    "DELETE /workspaces/{workspace_id}: deleteWorkspace",
    "GET /admin/audit-log: listAllAuditEntries",
    "GET /admin/sandboxes: listAllSandboxes",
    "GET /admin/users: listUsers",
    "GET /api-tokens: listApiTokens",
    "GET /auth/account: getAccount",
    "GET /auth/identities: listIdentities",
    "GET /auth/password/reset: showPasswordResetPage",
    "GET /auth/second-factor: getSecondFactor",
    "GET /auth/sessions: listSessions",
    "GET /auth/sso/{provider}/callback: finishSso",
    "GET /auth/sso/{provider}: startSso",
    "GET /auth/verify-email: showVerificationPage",
    "GET /docs/errors: showErrorCodes",
    "GET /docs: showReference",
    "GET /healthz: checkHealth",
    "GET /openapi.json: getOpenApiDocument",
    "GET /readyz: checkReadiness",
    "GET /registries/{registry_id}: getRegistry",
    "GET /registries: listRegistries",
    "GET /sandbox-images/{image_id}: getImage",
    "GET /sandbox-images: listImages",
    "GET /sandbox/monitoring/{sandbox_id}/stream: streamMonitoring",
    "GET /sandbox/monitoring/{sandbox_id}: getMonitoring",
    "GET /sandboxes/{sandbox_id}/files/archive: readArchive",
    "GET /sandboxes/{sandbox_id}/files/entries: listEntries",
    "GET /sandboxes/{sandbox_id}/files/entry: getEntry",
    "GET /sandboxes/{sandbox_id}/files/watch: watchFiles",
    "GET /sandboxes/{sandbox_id}/files: readFile",
    "GET /sandboxes/{sandbox_id}/listening: listListening",
    "GET /sandboxes/{sandbox_id}/ports/{port}/http/{rest}: getOnPort",
    "GET /sandboxes/{sandbox_id}/ports/{port}/tcp: connectPort",
    "GET /sandboxes/{sandbox_id}/ports/{preview_id}: getPreview",
    "GET /sandboxes/{sandbox_id}/ports: listPreviews",
    "GET /sandboxes/{sandbox_id}/processes/{process_id}/attach: attachProcess",
    "GET /sandboxes/{sandbox_id}/processes/{process_id}/output: readOutput",
    "GET /sandboxes/{sandbox_id}/processes/{process_id}: getProcess",
    "GET /sandboxes/{sandbox_id}/processes: listProcesses",
    "GET /sandboxes/{sandbox_id}: getSandbox",
    "GET /sandboxes: listSandboxes",
    "GET /workspaces/{workspace_id}/audit-log: listAuditEntries",
    "GET /workspaces/{workspace_id}/members: listMembers",
    "GET /workspaces/{workspace_id}: getWorkspace",
    "GET /workspaces: listWorkspaces",
    "OPTIONS /sandboxes/{sandbox_id}/ports/{port}/http/{rest}: optionsOnPort",
    "PATCH /sandboxes/{sandbox_id}/files: setMode",
    "PATCH /sandboxes/{sandbox_id}/ports/{port}/http/{rest}: patchOnPort",
    "POST /api-tokens: createApiToken",
    "POST /auth/login: signIn",
    "POST /auth/logout: signOut",
    "POST /auth/password/forgot: requestPasswordReset",
    "POST /auth/password/reset: resetPassword",
    "POST /auth/password: changePassword",
    "POST /auth/refresh: refreshSession",
    "POST /auth/register: register",
    "POST /auth/resend-verification: resendVerification",
    "POST /auth/second-factor/confirm: confirmSecondFactor",
    "POST /auth/second-factor/recovery-codes: createRecoveryCodes",
    "POST /auth/second-factor: createSecondFactor",
    "POST /auth/verify-email: verifyEmail",
    "POST /registries: createRegistry",
    "POST /sandbox-images: createImage",
    "POST /sandboxes/provision: provisionSandbox",
    "POST /sandboxes/wait: waitForSandbox",
    "POST /sandboxes/{sandbox_id}/exec: runCommand",
    "POST /sandboxes/{sandbox_id}/extend: extendSandbox",
    "POST /sandboxes/{sandbox_id}/files/directories: makeDirectory",
    "POST /sandboxes/{sandbox_id}/files/move: moveEntry",
    "POST /sandboxes/{sandbox_id}/ports/{port}/http/{rest}: postOnPort",
    "POST /sandboxes/{sandbox_id}/ports/{preview_id}/links: createPreviewLink",
    "POST /sandboxes/{sandbox_id}/ports: createPreview",
    "POST /sandboxes/{sandbox_id}/processes/{process_id}/signal: signalProcess",
    "POST /sandboxes/{sandbox_id}/processes/{process_id}/stdin: writeStdin",
    "POST /sandboxes/{sandbox_id}/processes/{process_id}/tickets: createTicket",
    "POST /sandboxes/{sandbox_id}/processes/{process_id}/wait: waitProcess",
    "POST /sandboxes/{sandbox_id}/processes: startProcess",
    "POST /workspaces/{workspace_id}/members: addMember",
    "POST /workspaces: createWorkspace",
    "PUT /admin/users/{user_id}: updateUser",
    "PUT /registries/{registry_id}: updateRegistry",
    "PUT /sandbox-images/{image_id}: updateImage",
    "PUT /sandboxes/{sandbox_id}/files/archive: writeArchive",
    "PUT /sandboxes/{sandbox_id}/files: writeFile",
    "PUT /sandboxes/{sandbox_id}/ports/{port}/http/{rest}: putOnPort",
    "PUT /sandboxes/{sandbox_id}/processes/{process_id}/pty: resizeTerminal",
    "PUT /workspaces/{workspace_id}/members/{user_id}: updateMember",
    "PUT /workspaces/{workspace_id}: updateWorkspace",
  ]);
  const routed = documented.filter((line) => {
    const [method = "", path = ""] = line.split(/:? /);
    return platform.app.hasRoute({
      method: method as "GET",
      url: path.replace("/{rest}", "*").replace(/\{(\w+)\}/g, ":$1"),
    });
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
        Object.keys(responses).some((status) => /^[123]/.test(status)),
        name,
      ).toBe(true);
      const anyCredential = name === "get /auth/account";
      const sessionOnly =
        !anyCredential &&
        (["/api-tokens", "/auth/sessions", "/auth/account", "/auth/identities", "/auth/second-factor", "/admin/"].some(
          (start) => path.startsWith(start),
        ) ||
          name === "post /auth/password");
      const open =
        !sessionOnly &&
        !anyCredential &&
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

test("says which permission an API token needs wherever one is enough", () => {
  const needed: Record<string, string[]> = {};
  for (const [path, methods] of Object.entries(document.paths)) {
    for (const [method, { description, security }] of Object.entries(methods)) {
      const name = `${method.toUpperCase()} ${path}`;
      const told = /has `permissions` needs `(\w+)`/.exec(description ?? "")?.[1];
      const needsNone = description?.includes("whatever `permissions` it has") ?? false;
      expect(told !== undefined || needsNone, name).toBe(security?.length === 2);
      if (told) needed[told] = [...(needed[told] ?? []), name];
    }
  }
  expect(needed.provision).toContain("POST /sandboxes/wait");
  expect(needed.manage).toContain("POST /workspaces/{workspace_id}/members");
  expect(needed.read).toContain("GET /sandbox/monitoring/{sandbox_id}/stream");
  for (const name of needed.read ?? []) expect(name).toMatch(/^GET /);
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
