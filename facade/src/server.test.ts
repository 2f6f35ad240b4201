import { connect } from "node:net";
import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import { publicErrors } from "@sandgate/kit/base/reasons";
import { callOf } from "@sandgate/kit/rpc/context";
import { Permission, Role } from "@sandgate/proto/common/v1/access";
import { SandboxState } from "@sandgate/proto/sandbox/v1/sandbox";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  apiToken,
  at,
  boundApiToken,
  foreignWorkspaceId,
  openTestPlatform,
  type TestPlatform,
  userId,
  workspaceId,
} from "./test-platform.ts";

let platform: TestPlatform;
let session: string;
const seen: { requestId: string; idempotencyKey: string | undefined; user: unknown }[] = [];

/** How many rows each list was asked for. */
const asked: number[] = [];
const imageCount = 730;

const revocationKeys: (string | undefined)[] = [];

beforeAll(async () => {
  platform = await openTestPlatform({
    env: { SANDGATE_RATE_LIMIT: "0", SANDGATE_SIGNIN_RATE_LIMIT: "0" },
    handlers: {
      identity: {
        signIn: ({ username, otp }) => {
          if (username === "with-factor@example.test") {
            throw new DomainError("INVALID_CREDENTIALS", otp === undefined ? "A code is needed." : "Wrong.", {
              hint: "Send `otp`.",
              violations: [{ field: "otp", issue: "is required" }],
            });
          }
          if (username !== "ada@example.test") throw new DomainError("INVALID_CREDENTIALS", "Wrong name or password.");
          return {
            tokens: { accessToken: "a", refreshToken: "r", expiresInSeconds: 300, refreshExpiresInSeconds: 1800 },
          };
        },
        revokeApiToken: (_, context) => {
          revocationKeys.push(callOf(context).idempotencyKey);
          throw new DomainError("API_KEY_NOT_FOUND", "No such token.");
        },
        createApiToken: ({ description, expiresAt }) => ({
          token: "sgt_new",
          apiToken: { id: "t1", description, tokenHint: "sgt_", createdAt: at, ...(expiresAt && { expiresAt }) },
        }),
      },
      workspace: {
        createWorkspace: ({ name }, context) => {
          const { requestId, idempotencyKey, user } = callOf(context);
          seen.push({ requestId, idempotencyKey, user });
          return { workspace: { id: workspaceId, name, role: Role.OWNER, createdAt: at, updatedAt: at } };
        },
        listWorkspaces: () => ({ workspaces: [], nextCursor: "more" }),
        deleteWorkspace: () => ({}),
      },
      imageRegistry: {
        createImage: ({ name, image, memoryMb }) => {
          if (name === "taken tag") throw invalid("tag", "does not fit the tag in image");
          return {
            image: {
              id: "image-1",
              name,
              image,
              tag: "latest",
              enabled: true,
              memoryMb: memoryMb ?? 1024,
              createdAt: at,
              updatedAt: at,
              workspaceId,
            },
          };
        },
        listImages: ({ enabledOnly, page }) => {
          const [from, limit] = [Number(page?.cursor), page?.limit ?? 0];
          asked.push(limit);
          const shown = Array.from({ length: Math.min(limit, imageCount - from) }, (_, index) => ({
            id: `image-${from + index}`,
            name: '"quoted"',
            image: "busybox",
            tag: "latest",
            createdAt: at,
            updatedAt: at,
          }));
          const end = from + shown.length;
          return { images: shown, total: enabledOnly ? 1 : imageCount, nextCursor: end < imageCount ? `${end}` : "" };
        },
        getImage: () => {
          throw new Error("secret of the database");
        },
        deleteImage: () => {
          throw new DomainError("WORKSPACE_NOT_FOUND", "gone");
        },
      },
      sandbox: {
        listSandboxes: ({ page }) => {
          const [from, limit] = [Number(page?.cursor), page?.limit ?? 0];
          asked.push(limit);
          const sandboxes = Array.from({ length: limit }, (_, index) => ({
            id: `sandbox-${from + index}`,
            state: SandboxState.READY,
            createdAt: at,
            updatedAt: at,
          }));
          return { sandboxes, nextCursor: `${from + limit}` };
        },
      },
    },
  });
  session = `Bearer ${await platform.signAccessToken()}`;
});
afterAll(() => platform.close());
beforeEach(() => {
  platform.state.role = Role.OWNER;
  platform.state.workspaceExists = true;
  platform.bus.signal("workspace.membership", `${workspaceId} *`);
});

const authorized = (extra: Record<string, string> = {}) => ({
  authorization: session,
  "x-workspace-id": workspaceId,
  ...extra,
});

describe("authentication", () => {
  test.each([
    [undefined, "unauthenticated"],
    ["", "unauthenticated"],
    ["Basic YTpi", "unauthenticated"],
    ["Bearer", "unauthenticated"],
    ["Bearer   ", "unauthenticated"],
    ["Bearer nonsense", "invalid_token"],
    ["bearer sgt_unknown", "invalid_token"],
    [`Bearer sgt_${"x".repeat(600)}`, "invalid_token"],
  ])("answers %j with %s", async (authorization, code) => {
    const response = await platform.app.inject({ url: "/workspaces", headers: authorization ? { authorization } : {} });
    expect(response.statusCode).toBe(401);
    expect(response.json().error.code).toBe(code);
    expect(response.headers["www-authenticate"]).toMatch(/^Bearer/);
  });

  test.each([
    ["another type", { typ: "JWT" }],
    ["another issuer", { iss: "https://other.test" }],
    ["another audience", { aud: "other" }],
    ["a passed end", { expiresInSeconds: -1 }],
  ])("refuses a session token with %s", async (_name, claims) => {
    const token = await platform.signAccessToken(claims);
    const response = await platform.app.inject({ url: "/workspaces", headers: { authorization: `Bearer ${token}` } });
    expect(response.json().error.code).toBe("invalid_token");
  });

  test("takes sessions and API tokens, whatever the scheme's case", async () => {
    for (const authorization of [session.replace("Bearer", "bEARER"), `Bearer ${apiToken}`]) {
      const response = await platform.app.inject({ url: "/workspaces", headers: { authorization } });
      expect(response.statusCode).toBe(200);
      expect(response.json()).toEqual({ workspaces: [], next_cursor: "more", default_workspace_id: null });
    }
  });

  test("refuses an ended session as soon as it is notified", async () => {
    const authorization = `Bearer ${await platform.signAccessToken({ sid: "ending" })}`;
    const read = () => platform.app.inject({ url: "/workspaces", headers: { authorization } });
    expect((await read()).statusCode).toBe(200);
    platform.bus.signal("identity.sessions.ended", "ending");
    expect((await read()).json().error.code).toBe("invalid_token");
  });

  test("refuses a revoked API token as soon as it is notified", async () => {
    const read = () => platform.app.inject({ url: "/workspaces", headers: { authorization: `Bearer ${apiToken}` } });
    expect((await read()).statusCode).toBe(200);
    platform.state.revokedTokens.add(apiToken);
    platform.bus.signal("identity.api_tokens.revoked", "id");
    expect((await read()).json().error.code).toBe("invalid_token");
    platform.state.revokedTokens.clear();
  });

  test("lets only sessions manage API tokens, after the fields", async () => {
    const headers = { authorization: `Bearer ${apiToken}` };
    const invalidField = await platform.app.inject({ method: "POST", url: "/api-tokens/", headers, payload: {} });
    expect(invalidField.json().error.code).toBe("validation_error");
    const refused = await platform.app.inject({ url: "/api-tokens", headers });
    expect(refused.json().error.code).toBe("forbidden");
    expect(refused.statusCode).toBe(403);
  });

  test("holds an API token to its role, and to the least for one that this version doesn't know", async () => {
    const url = `/workspaces/${workspaceId}`;
    const headers = { authorization: `Bearer ${apiToken}` };
    const ofLaterVersion: Role = JSON.parse("99");
    for (const [role, status] of [
      [Role.MEMBER, 403],
      [Role.ADMIN, 403],
      [ofLaterVersion, 403],
      [Role.OWNER, 204],
    ] as const) {
      platform.state.tokenRole = role;
      platform.bus.signal("identity.api_tokens.revoked", "id");
      const response = await platform.app.inject({ method: "DELETE", url, headers });
      expect(response.statusCode, `${role}`).toBe(status);
    }
    platform.state.tokenRole = Role.UNSPECIFIED;
  });

  test("lets an API token do what its permissions cover, and nothing with those of a later version", async () => {
    const headers = { authorization: `Bearer ${apiToken}` };
    const [read, remove] = [
      { method: "GET", url: `/workspaces/${workspaceId}`, headers },
      { method: "DELETE", url: `/workspaces/${workspaceId}`, headers },
    ] as const;
    const ofLaterVersion: Permission = JSON.parse("99");
    for (const [permissions, statuses] of [
      [[Permission.READ], [200, 403]],
      [[Permission.MANAGE], [403, 204]],
      [
        [Permission.USE, Permission.PROVISION],
        [403, 403],
      ],
      [[ofLaterVersion], [403, 403]],
      [
        [ofLaterVersion, Permission.READ],
        [200, 403],
      ],
      [[], [200, 204]],
    ] as const) {
      platform.state.tokenPermissions = [...permissions];
      platform.bus.signal("identity.api_tokens.revoked", "id");
      platform.state.called.length = 0;
      const answers = [await platform.app.inject(read), await platform.app.inject(remove)];
      // What is refused reaches no service: one of an earlier version wouldn't refuse it.
      const reached = platform.state.called
        .map(({ name }) => name)
        .filter((name) => /^(?:Get|Delete)Workspace$/.test(name));
      expect(reached).toHaveLength(statuses.filter((status) => status < 400).length);
      expect(
        answers.map(({ statusCode }) => statusCode),
        `${permissions}`,
      ).toEqual(statuses);
      for (const { statusCode, body } of answers) {
        if (statusCode === 403) expect(JSON.parse(body).error.code).toBe("forbidden");
      }
    }
  });

  test("an API token without the permissions that were asked for, made by an earlier version, is given to nobody", async () => {
    const headers = { authorization: session };
    const payload = { description: "x", permissions: ["read"] };
    platform.state.called.length = 0;
    const response = await platform.app.inject({ method: "POST", url: "/api-tokens", headers, payload });
    expect(response.json().error).toMatchObject({ code: "upstream_error", retryable: true });
    expect(response.body).not.toContain("sgt_");
    expect(platform.state.called.at(-1)?.name).toBe("RevokeApiToken");
  });

  test("holds a bound API token to its workspace", async () => {
    const headers = { authorization: `Bearer ${boundApiToken}` };
    const own = await platform.app.inject({ url: `/workspaces/${workspaceId}`, headers });
    expect(own.statusCode).toBe(200);
    const foreign = await platform.app.inject({ url: `/workspaces/${foreignWorkspaceId}`, headers });
    expect(foreign.json().error.code).toBe("workspace_forbidden");
    const created = await platform.app.inject({ method: "POST", url: "/workspaces", headers, payload: { name: "x" } });
    expect(created.json().error.code).toBe("workspace_forbidden");
    const list = await platform.app.inject({ url: "/workspaces", headers });
    expect(list.json().workspaces.map(({ id }: { id: string }) => id)).toEqual([workspaceId]);
  });
});

test("what is wrong with the code of a second factor is told with its field", async () => {
  const credentials = { username: "with-factor@example.test", password: "correct horse" };
  for (const otp of [undefined, "123456"]) {
    const response = await platform.app.inject({
      method: "POST",
      url: "/auth/login",
      payload: { ...credentials, ...(otp !== undefined && { otp }) },
    });
    expect(response.statusCode).toBe(401);
    expect(response.json().error).toMatchObject({
      code: "invalid_credentials",
      message: otp === undefined ? "A code is needed." : "Wrong.",
      hint: "Send `otp`.",
      details: [{ field: "body.otp", issue: "is required" }],
    });
  }
});

describe("workspaces", () => {
  test("asks for the header, after the fields", async () => {
    const { "x-workspace-id": _, ...headers } = authorized();
    const missing = await platform.app.inject({ url: "/sandbox-images", headers });
    expect(missing.statusCode).toBe(400);
    expect(missing.json().error.code).toBe("workspace_required");
    const empty = await platform.app.inject({ url: "/sandbox-images", headers: { ...headers, "x-workspace-id": "" } });
    expect(empty.json().error.code).toBe("workspace_required");
    const field = await platform.app.inject({ url: "/sandbox-images?limit=0", headers });
    expect(field.json().error.code).toBe("validation_error");
  });

  test("reports a malformed or repeated header", async () => {
    for (const value of ["nonsense", `${workspaceId}, ${workspaceId}`]) {
      const response = await platform.app.inject({
        url: "/sandbox-images",
        headers: authorized({ "x-workspace-id": value }),
      });
      expect(response.json().error.details).toEqual([{ field: "header.x-workspace-id", issue: "must be a UUID" }]);
    }
  });

  test("hides whether a workspace in the header exists, and not one in the path", async () => {
    const absent = "01900000-0000-7000-8000-0000000000ff";
    for (const id of [absent, foreignWorkspaceId]) {
      const response = await platform.app.inject({
        url: "/sandbox-images",
        headers: authorized({ "x-workspace-id": id }),
      });
      expect(response.json().error.code).toBe("workspace_forbidden");
    }
    const inPath = await platform.app.inject({ url: `/workspaces/${absent}`, headers: authorized() });
    expect(inPath.json().error.code).toBe("workspace_not_found");
    const foreign = await platform.app.inject({ url: `/workspaces/${foreignWorkspaceId}`, headers: authorized() });
    expect(foreign.json().error.code).toBe("workspace_forbidden");
  });

  test("turns a workspace that went in between into workspace_forbidden where the header named it", async () => {
    const response = await platform.app.inject({
      method: "DELETE",
      url: "/sandbox-images/image-1",
      headers: authorized(),
    });
    expect(response.json().error.code).toBe("workspace_forbidden");
  });

  test("revokes a token under a key of the request's own, so that only its own repetition is the same revocation", async () => {
    const headers = { authorization: session, "idempotency-key": "the client's" };
    for (const _ of [1, 2]) await platform.app.inject({ method: "DELETE", url: "/api-tokens/sgt_any", headers });
    const keys = revocationKeys.slice(-2);
    expect(new Set([...keys, undefined, "the client's"]).size).toBe(4);
  });

  test("finds no registry by a blank id", async () => {
    const payload = { name: "a", image: "app", registry_id: "" };
    const response = await platform.app.inject({
      method: "POST",
      url: "/sandbox-images",
      headers: authorized(),
      payload,
    });
    expect(response.json().error.code).toBe("registry_not_found");
  });

  test("takes the id in any case", async () => {
    const headers = authorized({ "x-workspace-id": workspaceId.toUpperCase() });
    expect((await platform.app.inject({ url: "/sandbox-images", headers })).statusCode).toBe(200);
  });

  test("checks the role, and again when the membership changed", async () => {
    const remove = () =>
      platform.app.inject({ method: "DELETE", url: `/workspaces/${workspaceId}/`, headers: authorized() });
    platform.state.role = Role.ADMIN;
    expect((await remove()).json().error.code).toBe("insufficient_role");
    platform.state.role = Role.OWNER;
    platform.bus.signal("workspace.membership", `${workspaceId} ${userId}`);
    const response = await remove();
    expect(response.statusCode).toBe(204);
    expect(response.body).toBe("");
  });

  test("answers a 422 of the deletion in its own shape", async () => {
    const response = await platform.app.inject({ method: "DELETE", url: "/workspaces/1", headers: authorized() });
    expect(response.statusCode).toBe(422);
    expect(response.json()).toEqual({
      detail: [{ loc: ["path", "workspace_id"], msg: "must be a UUID", type: "value_error" }],
    });
    expect(response.headers["x-request-id"]).toBeDefined();
  });
});

describe("fields", () => {
  const create = (payload: unknown, headers: Record<string, string> = {}) =>
    platform.app.inject({
      method: "POST",
      url: "/sandbox-images",
      headers: { ...authorized(), "content-type": "application/json", ...headers },
      payload: typeof payload === "string" ? payload : JSON.stringify(payload),
    });

  test("reports all bad fields of all places, one item each", async () => {
    const response = await create(
      { name: null, memory_mb: "1024", ttl_seconds: 59, readiness_port: 0, enabled: 1, description: 3 },
      { "x-workspace-id": "bad", "idempotency-key": "ä" },
    );
    expect(response.statusCode).toBe(422);
    const { error, detail } = response.json();
    expect(detail).toBe(error.message);
    expect(error.retryable).toBe(false);
    expect(error.details.map(({ field }: { field: string }) => field).toSorted()).toEqual([
      "body.description",
      "body.enabled",
      "body.image",
      "body.memory_mb",
      "body.name",
      "body.readiness_port",
      "body.ttl_seconds",
      "header.idempotency-key",
      "header.x-workspace-id",
    ]);
  });

  test("takes null where it stands for nothing, and the fields of a record that was read", async () => {
    const nothing = { description: null, registry_id: null, readiness_port: null, ttl_seconds: null };
    const response = await create({ name: "a", image: "app", ...nothing, id: "x", created_at: 1 });
    expect(response.statusCode).toBe(201);
    expect(response.json()).toEqual({
      id: "image-1",
      name: "a",
      image: "app",
      description: null,
      tag: "latest",
      enabled: true,
      is_default: false,
      memory_mb: 1024,
      created_at: "2026-05-28T20:26:40.123Z",
      updated_at: "2026-05-28T20:26:40.123Z",
      readiness_port: null,
      ttl_seconds: null,
      workspace_id: workspaceId,
      registry_id: null,
      registry_name: null,
    });
  });

  test.each([
    ["malformed JSON", "{", {}],
    ["a wrong content type", "{}", { "content-type": "text/plain" }],
    ["a malformed content type", "{}", { "content-type": "nonsense" }],
    ["more than 1 MiB", JSON.stringify({ name: "x".repeat(1024 * 1024) }), {}],
    ["too many values", `[${"{},".repeat(100_000)}{}]`, {}],
    ["no object", "[]", {}],
    ["null", "null", {}],
    ["nothing", "", {}],
  ])("reports a body with %s", async (_name, payload, headers) => {
    const response = await create(payload, headers);
    expect(response.statusCode).toBe(422);
    expect(response.json().error.details).toEqual([{ field: "body", issue: expect.any(String) }]);
  });

  test("reports bytes that are not UTF-8", async () => {
    const response = await platform.app.inject({
      method: "POST",
      url: "/workspaces",
      headers: { authorization: session, "content-type": "application/json; charset=utf-8" },
      payload: Buffer.from([0x22, 0xff, 0x22]),
    });
    expect(response.json().error.details).toEqual([{ field: "body", issue: "must be valid JSON in UTF-8" }]);
  });

  test("takes what begins values elsewhere for part of a string", async () => {
    const response = await create(JSON.stringify({ name: '",[{\\'.repeat(50_000) }));
    expect(response.json().error.details).toContainEqual({
      field: "body.name",
      issue: "must have 100 characters or fewer",
    });
  });

  test("reports the other places beside an unreadable body", async () => {
    const response = await create("{", { "x-workspace-id": "bad" });
    expect(response.json().error.details.map(({ field }: { field: string }) => field)).toEqual([
      "header.x-workspace-id",
      "body",
    ]);
  });

  test("names a service's violation by its public path", async () => {
    const response = await create({ name: "taken tag", image: "app" });
    expect(response.json().error).toMatchObject({
      code: "validation_error",
      message: "body.tag does not fit the tag in image.",
      details: [{ field: "body.tag", issue: "does not fit the tag in image" }],
    });
  });

  test.each([
    ["", { images: 730, total: 730, next_cursor: null }],
    ["?enabled_only=true&limit=1", { images: 1, total: 1, next_cursor: "1" }],
    ["?enabled_only=false&limit=5&cursor=727", { images: 3, total: 730, next_cursor: null }],
    ["?cursor=5", { images: 100, total: 730, next_cursor: "105" }],
    ["?limit=450&cursor=20", { images: 450, total: 730, next_cursor: "470" }],
  ])("coerces the query %j, and asks for a bounded number of rows at once", async (query, expected) => {
    asked.length = 0;
    const response = await platform.app.inject({ url: `/sandbox-images/${query}`, headers: authorized() });
    const { images, ...rest } = response.json();
    expect({ ...rest, images: images.length }).toEqual(expected);
    const first = Number(new URLSearchParams(query).get("cursor"));
    expect(images.map(({ id }: { id: string }) => id)).toEqual(
      Array.from({ length: expected.images }, (_, index) => `image-${first + index}`),
    );
    expect(images[0]).toMatchObject({ name: '"quoted"', description: null, created_at: "2026-05-28T20:26:40.123Z" });
    expect(Math.max(...asked)).toBeLessThanOrEqual(100);
  });

  test("a list without rows, by HEAD too", async () => {
    const url = "/sandbox-images?cursor=730";
    const response = await platform.app.inject({ url, headers: authorized() });
    expect(response.json()).toEqual({ images: [], total: imageCount, next_cursor: null });
    const head = await platform.app.inject({ method: "HEAD", url, headers: authorized() });
    expect(head.statusCode).toBe(200);
    expect(head.headers["content-length"]).toBe(response.headers["content-length"]);
    expect(head.body).toBe("");
  });

  test("sandboxes too are asked for in parts", async () => {
    asked.length = 0;
    const response = await platform.app.inject({ url: "/sandboxes?limit=250&state=ready", headers: authorized() });
    const { sandboxes, next_cursor } = response.json();
    expect(sandboxes.map(({ id }: { id: string }) => id)).toEqual(
      Array.from({ length: 250 }, (_, index) => `sandbox-${index}`),
    );
    expect([asked, next_cursor]).toEqual([[100, 100, 50], "250"]);
  });

  test.each(["enabled_only=maybe", "enabled_only=", "limit=1.5", "limit=501", "limit=1&limit=2", "limit="])(
    "refuses the query %j",
    async (query) => {
      const response = await platform.app.inject({ url: `/sandbox-images?${query}`, headers: authorized() });
      expect(response.json().error.details).toEqual([
        { field: `query.${query.split("=")[0]}`, issue: expect.any(String) },
      ]);
    },
  );

  test("ignores a body where there is none to read, and finds a too long id nowhere", async () => {
    const response = await platform.app.inject({
      method: "DELETE",
      url: `/sandbox-images/${"x".repeat(3000)}`,
      headers: authorized({ "content-type": "application/json" }),
      payload: "{",
    });
    expect(response.json().error.code).toBe("image_not_found");
  });

  test("takes a moment with an offset, and no bare date", async () => {
    const post = (expires_at: string) =>
      platform.app.inject({
        method: "POST",
        url: "/api-tokens/",
        headers: { authorization: session },
        payload: { description: "x", expires_at },
      });
    expect((await post("2030-01-01T00:00:00+02:00")).json().expires_at).toBe("2029-12-31T22:00:00.000Z");
    expect((await post("2030-01-01")).json().error.details[0].field).toBe("body.expires_at");
  });
});

describe("every answer", () => {
  test("carries the request id, the caller's when it is well-formed", async () => {
    const given = await platform.app.inject({ url: "/nowhere", headers: { "x-request-id": "a.B_-9" } });
    expect(given.headers["x-request-id"]).toBe("a.B_-9");
    expect(given.json().error.request_id).toBe("a.B_-9");
    for (const bad of ["", "a b", "x".repeat(129)]) {
      const made = await platform.app.inject({ url: "/healthz", headers: { "x-request-id": bad } });
      expect(made.headers["x-request-id"]).toMatch(/^[0-9a-f-]{36}$/);
    }
  });

  test.each(["/nowhere", "/workspaces/%zz", "/sandboxes//x", "/Workspaces"])(
    "is not_found for %s, without a token too",
    async (url) => {
      const response = await platform.app.inject({ url, headers: { "x-request-id": "r1" } });
      expect(response.statusCode).toBe(404);
      expect(response.headers["x-request-id"]).toBe("r1");
      expect(response.json()).toEqual({
        error: {
          code: "not_found",
          message: "There is no such route.",
          hint: publicErrors.NOT_FOUND.hint,
          docs_url: "https://api.test/v/docs/errors#not_found",
          retryable: false,
          request_id: "r1",
        },
        detail: "There is no such route.",
      });
    },
  );

  test("is not_found for a method that a path lacks, whatever its body", async () => {
    for (const method of ["PATCH", "PUT", "OPTIONS", "TRACE"] as const) {
      const response = await platform.app.inject({
        method,
        url: "/workspaces",
        ...(method !== "TRACE" && { payload: "{", headers: { "content-type": "application/json" } }),
      });
      expect(response.json().error.code).toBe("not_found");
    }
  });

  test("works for HEAD as for GET, with a trailing slash, and under the public prefix", async () => {
    const head = await platform.app.inject({
      method: "HEAD",
      url: "/workspaces/",
      headers: { authorization: session },
    });
    expect(head.statusCode).toBe(200);
    expect(head.body).toBe("");
    expect((await platform.app.inject({ url: "/v/healthz" })).statusCode).toBe(200);
  });

  test("hides what went wrong inside, and logs it", async () => {
    const response = await platform.app.inject({ url: "/sandbox-images/1", headers: authorized() });
    expect(response.statusCode).toBe(500);
    expect(response.json().error).toMatchObject({ code: "internal_error", retryable: true });
    expect(response.body).not.toContain("database");
    expect(platform.logLines.join("")).toContain("secret of the database");
  });

  test("passes on request id, idempotency key and the authorized caller", async () => {
    const response = await platform.app.inject({
      method: "POST",
      url: "/workspaces",
      headers: { authorization: session, "idempotency-key": "key one", "x-request-id": "r2" },
      payload: { name: "n" },
    });
    expect(response.statusCode).toBe(201);
    expect(seen.at(-1)).toEqual({
      requestId: "r2",
      idempotencyKey: "key one",
      user: { id: userId, credential: "session", credentialId: "s1", operator: false },
    });
  });

  test("never logs a token from a path", async () => {
    for (const url of ["/api-tokens/sgt_secret", "/api-token/sgt_secret", "/api-tokens/sgt_secret%zz"]) {
      await platform.app.inject({ method: "DELETE", url, headers: { authorization: session } });
    }
    const lines = platform.logLines.join("");
    expect(lines).toContain('"/api-tokens/:token"');
    expect(lines).not.toContain("sgt_secret");
  });

  test("signs in, with an answer that is not to be stored", async () => {
    const login = (username: string) =>
      platform.app.inject({ method: "POST", url: "/auth/login", payload: { username, password: "x" } });
    const done = await login("ada@example.test");
    expect(done.headers["cache-control"]).toBe("no-store");
    expect(done.json()).toEqual({
      success: true,
      tokens: { access_token: "a", refresh_token: "r", expires_in: 300, refresh_expires_in: 1800 },
    });
    const refused = await login("eve@example.test");
    expect(refused.statusCode).toBe(401);
    expect(refused.json().error.code).toBe("invalid_credentials");
  });
});

describe("over a connection", () => {
  let port: number;
  beforeAll(async () => {
    port = Number(new URL(await platform.listen()).port);
  });

  /** Sends bytes and answers all that comes back until the server closes. */
  function exchange(text: string): Promise<string> {
    return new Promise((resolve, reject) => {
      const socket = connect(port, "127.0.0.1", () => socket.write(text));
      let answer = "";
      socket.on("data", (chunk) => {
        answer += chunk.toString();
      });
      socket.on("close", () => resolve(answer));
      socket.on("error", reject);
    });
  }

  test("answers what isn't HTTP with the envelope", async () => {
    const answer = await exchange("NONSENSE\r\n\r\n");
    expect(answer).toMatch(/^HTTP\/1\.1 422 /);
    expect(answer).toContain("X-Request-Id: ");
    expect(JSON.parse(answer.split("\r\n\r\n")[1] ?? "").error.details[0].field).toBe("body");
  });

  test.each([
    ["without a Host", "GET /nowhere HTTP/1.1\r\nConnection: close\r\n\r\n"],
    ["with an unknown expectation", "GET /nowhere HTTP/1.1\r\nHost: x\r\nExpect: wonders\r\nConnection: close\r\n\r\n"],
    ["with a star as target", "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"],
  ])("answers a request %s with the envelope", async (_name, text) => {
    const answer = await exchange(text);
    expect(answer).toMatch(/^HTTP\/1\.1 404 /);
    expect(answer.toLowerCase()).toContain("x-request-id: ");
    expect(answer).toContain('"not_found"');
  });

  test.each(["http://api.test", "HTTPS://api.test/v"])("takes a whole address below %s as target", async (address) => {
    const answer = await exchange(
      `GET ${address}/workspaces/${workspaceId}?x=/ HTTP/1.1\r\nHost: x\r\nAuthorization: ${session}\r\nConnection: close\r\n\r\n`,
    );
    expect(answer).toMatch(/^HTTP\/1\.1 200 /);
    expect(answer).toContain(`"id":"${workspaceId}"`);
  });

  test("takes a whole address without a path for /", async () => {
    const answer = await exchange("GET http://api.test?x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    expect(answer).toMatch(/^HTTP\/1\.1 302 /);
  });

  test("reports a header that was sent twice", async () => {
    const twice = `X-Workspace-Id: ${workspaceId}\r\nX-Workspace-Id: ${workspaceId}\r\n`;
    const answer = await exchange(
      `GET /sandbox-images HTTP/1.1\r\nHost: x\r\nAuthorization: ${session}\r\n${twice}Connection: close\r\n\r\n`,
    );
    expect(answer).toMatch(/^HTTP\/1\.1 422 /);
    expect(answer).toContain("header.x-workspace-id");
  });

  test("answers a body that is too large before the client has sent it all", async () => {
    const response = await fetch(`http://127.0.0.1:${port}/workspaces`, {
      method: "POST",
      headers: { authorization: session, "content-type": "application/json" },
      body: new Uint8Array(8 * 1024 * 1024).fill(0x20),
    });
    expect(response.status).toBe(422);
  });
});
