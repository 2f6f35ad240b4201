import { afterEach, expect, test } from "vitest";
import { openTestPlatform, type TestPlatform } from "../../test-platform.ts";

let platform: TestPlatform | undefined;
afterEach(async () => {
  await platform?.close();
  platform = undefined;
});

test("lets browsers of the calling applications in, and no others", async () => {
  platform = await openTestPlatform({
    env: { SANDGATE_REDIRECT_URIS: "https://app.test/done, http://localhost:3000/" },
  });
  const { app } = platform;
  const preflight = (origin: string) =>
    app.inject({
      method: "OPTIONS",
      url: "/workspaces",
      headers: { origin, "access-control-request-method": "POST", "access-control-request-headers": "authorization" },
    });
  const answered = await preflight("https://app.test");
  expect(answered.statusCode).toBe(204);
  expect(answered.headers).toMatchObject({
    "access-control-allow-origin": "https://app.test",
    "access-control-allow-methods": expect.stringContaining("DELETE"),
    "access-control-allow-headers": expect.stringContaining("Authorization"),
    "x-request-id": expect.any(String),
    vary: "Origin",
  });
  const refused = await preflight("https://other.test");
  expect(refused.statusCode).toBe(404);
  expect(refused.headers["access-control-allow-origin"]).toBeUndefined();
  const failed = await app.inject({ url: "/workspaces", headers: { origin: "http://localhost:3000" } });
  expect(failed.headers).toMatchObject({
    "access-control-allow-origin": "http://localhost:3000",
    "access-control-expose-headers": expect.stringContaining("X-Request-Id, Retry-After, RateLimit-Limit"),
  });
});

test("counts no preflight, and answers it with the other headers of every answer", async () => {
  platform = await openTestPlatform({
    env: { SANDGATE_REDIRECT_URIS: "https://app.test/done", SANDGATE_RATE_LIMIT: "2" },
  });
  const { app } = platform;
  const options = (headers: Record<string, string>) => app.inject({ method: "OPTIONS", url: "/workspaces", headers });
  const preflight = { origin: "https://app.test", "access-control-request-method": "GET" };
  for (let i = 0; i < 3; i++) {
    const { statusCode, headers } = await options(preflight);
    expect(statusCode).toBe(204);
    expect(headers).toMatchObject({ "ratelimit-remaining": "2", "x-content-type-options": "nosniff" });
  }
  // Without the header of a preflight it is a request to a route that isn't there.
  const other = await options({ origin: "https://app.test" });
  expect(other.statusCode).toBe(404);
  expect(other.json().error.code).toBe("not_found");
  expect(other.headers).toMatchObject({
    "access-control-allow-origin": "https://app.test",
    "ratelimit-remaining": "1",
  });
});
