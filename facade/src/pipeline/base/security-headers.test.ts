import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { apiToken, openTestPlatform, type TestPlatform, workspaceId } from "../../test-platform.ts";

const headers = { authorization: `Bearer ${apiToken}`, "x-workspace-id": workspaceId };
const common = { "referrer-policy": "no-referrer", "x-content-type-options": "nosniff" };

let platform: TestPlatform;

beforeAll(async () => {
  platform = await openTestPlatform({ env: { SANDGATE_REDIRECT_URIS: "https://app.test/in" } });
});
afterAll(() => platform.close());

describe("every response", () => {
  test.each([
    ["a success", 200, { url: `/workspaces/${workspaceId}`, headers }],
    ["a refused credential", 401, { url: "/workspaces" }],
    ["an unknown route", 404, { url: "/no/such/route" }],
    ["a malformed path", 404, { url: "/sandboxes/%zz" }],
    [
      "a malformed body",
      422,
      { url: "/auth/login", method: "POST", headers: { "content-type": "text/plain" }, body: "x" },
    ],
    [
      "a preflight",
      204,
      {
        url: "/workspaces",
        method: "OPTIONS",
        headers: { origin: "https://app.test", "access-control-request-method": "GET" },
      },
    ],
    ["a probe", 200, { url: "/healthz" }],
    ["the OpenAPI document", 200, { url: "/openapi.json" }],
  ] as const)("%s: runs, frames and keeps nothing, and wants https", async (_name, status, request) => {
    const response = await platform.app.inject({ ...request });
    expect(response.statusCode).toBe(status);
    expect(response.headers).toMatchObject({
      ...common,
      "cache-control": "no-store",
      "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      "strict-transport-security": "max-age=31536000; includeSubDomains",
    });
  });

  test("bytes that are no request", async () => {
    const { port } = new URL(await platform.listen());
    const socket = connect(Number(port), "127.0.0.1", () => socket.write("nonsense\r\n\r\n"));
    const answer = (await text(socket)).toLowerCase();
    expect(answer).toMatch(/^http\/1.1 422 /);
    for (const [name, value] of Object.entries(common)) expect(answer).toContain(`\r\n${name}: ${value}\r\n`);
    expect(answer).toContain("frame-ancestors 'none'\r\n");
    expect(answer).toContain("\r\nstrict-transport-security: ");
  });

  test.each(["/docs", "/docs/errors", "/auth/verify-email", "/auth/password/reset"])(
    "the page %s has a policy of its own, and can't be framed either",
    async (url) => {
      const response = await platform.app.inject(url);
      expect(response.headers).toMatchObject({ ...common, "cache-control": "no-store" });
      const policy = String(response.headers["content-security-policy"]).split("; ");
      expect(policy).toEqual(
        expect.arrayContaining([
          "default-src 'none'",
          "base-uri 'none'",
          "form-action 'none'",
          "frame-ancestors 'none'",
        ]),
      );
      expect(policy.some((directive) => directive.startsWith("style-src "))).toBe(true);
    },
  );
});

test("where clients use http, nothing says that they must not", async () => {
  const plain = await openTestPlatform({ env: { SANDGATE_PUBLIC_URL: "http://localhost:8080" } });
  try {
    const response = await plain.app.inject("/healthz");
    expect(response.headers).not.toHaveProperty("strict-transport-security");
    expect(response.headers).toMatchObject(common);
  } finally {
    await plain.close();
  }
});
