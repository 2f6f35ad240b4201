import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectInvalid, expectStatus, isoMilliseconds, uniqueName, uuid } from "./client.ts";
import { openTarget, type Target, type Tenant } from "./target.ts";

let target: Target;
let owner: Tenant;
let stranger: Tenant;

const as = (tenant: Tenant) => ({ token: tenant.token, workspace: tenant.workspace });
const create = (body: unknown, tenant = owner) => target.post("/sandbox-images", body, as(tenant));

beforeAll(async () => {
  target = await openTarget();
  [owner, stranger] = [await target.newTenant(), await target.newTenant()];
});
afterAll(() => target?.close());

describe("registering an image", () => {
  test("fills in the defaults and answers the whole record", async () => {
    const body = { name: "python", image: "docker.io/library/python" };
    expect(expectStatus(await create(body), 201)).toEqual({
      id: uuid,
      name: "python",
      image: "docker.io/library/python",
      description: null,
      tag: "latest",
      enabled: true,
      is_default: false,
      memory_mb: 1024,
      created_at: isoMilliseconds,
      updated_at: isoMilliseconds,
      readiness_port: null,
      ttl_seconds: null,
      workspace_id: owner.workspace,
      registry_id: null,
      registry_name: null,
    });
  });

  test("takes every field, and null where null is allowed", async () => {
    const body = {
      name: "full",
      image: "registry.example.com:5000/team/app",
      description: "all of it",
      tag: "v1.2",
      enabled: false,
      is_default: false,
      registry_id: null,
      memory_mb: 512,
      readiness_port: 8080,
      ttl_seconds: 3600,
    };
    expect(expectStatus(await create(body), 201)).toMatchObject(body);
    const nulls = { name: "n", image: "busybox", description: null, readiness_port: null, ttl_seconds: null };
    expect(expectStatus(await create(nulls), 201)).toMatchObject(nulls);
  });

  test.each([
    ["memory_mb", 256, 8192, 255, 8193],
    ["ttl_seconds", 60, 86_400, 59, 86_401],
    ["readiness_port", 1, 65_535, 0, 65_536],
  ])("%s is an integer from %i to %i", async (field, least, most, below, above) => {
    for (const value of [least, most]) {
      expect(expectStatus(await create({ name: "n", image: "busybox", [field]: value }), 201)[field]).toBe(value);
    }
    for (const value of [below, above, least + 0.5, String(least), true, [least], ""]) {
      expectInvalid(await create({ name: "n", image: "busybox", [field]: value }), `body.${field}`);
    }
  });

  test("reports each invalid field", async () => {
    expectInvalid(await create({}), "body.name", "body.image");
    expectInvalid(
      await create({ name: "", image: 5, memory_mb: 1, ttl_seconds: "x", enabled: null, tag: null }),
      "body.name",
      "body.image",
      "body.memory_mb",
      "body.ttl_seconds",
      "body.enabled",
      "body.tag",
    );
    for (const name of ["x".repeat(101), "a\u0000b", "a\nb"]) {
      expectInvalid(await create({ name, image: "busybox" }), "body.name");
    }
    expectInvalid(await create({ name: "n", image: "busybox", description: "x".repeat(2001) }), "body.description");
  });

  test("follows the reference grammar", async () => {
    const digest = `sha256:${"a".repeat(64)}`;
    for (const image of [
      "host.example.com/UPPER",
      "a//b",
      "a b",
      "http://a/b",
      "a:",
      `a@sha256:12`,
      "-a",
      "host.example.com:0/a",
      "host.example.com:65536/a",
      "[1:2]/a",
      `${"a".repeat(256)}`,
    ]) {
      expectInvalid(await create({ name: "n", image }), "body.image");
    }
    for (const image of ["busybox", "a/b/c", "host.example.com/a", "host.example.com:444/a__b/c-d.e", `a@${digest}`]) {
      expect(expectStatus(await create({ name: "n", image }), 201).image).toBe(image);
    }
  });

  test("a tag in the reference becomes the tag, and must not contradict the tag field", async () => {
    expect(expectStatus(await create({ name: "n", image: "busybox:1.36" }), 201)).toMatchObject({
      image: "busybox:1.36",
      tag: "1.36",
    });
    expectStatus(await create({ name: "n", image: "busybox:1.36", tag: "1.36" }), 201);
    expectInvalid(await create({ name: "n", image: "busybox:1.36", tag: "1.37" }), "body.tag");
  });

  test("refuses private and loopback registry hosts", async () => {
    for (const image of ["127.0.0.1:9/a", "localhost:9/a", "10.0.0.8/a", "169.254.169.254/a", "[::1]:9/a"]) {
      expectInvalid(await create({ name: "n", image }), "body.image");
    }
  });

  test("the same Idempotency-Key makes one image", async () => {
    const options = { ...as(owner), headers: { "idempotency-key": uniqueName("key") } };
    const body = { name: "once", image: "busybox" };
    const answers = await Promise.all([1, 2, 3].map(() => target.post("/sandbox-images", body, options)));
    expect(new Set(answers.map((answer) => expectStatus(answer, 201).id)).size).toBe(1);
    expectError(await target.post("/sandbox-images", { ...body, name: "twice" }, options), "conflict");
  });
});

describe("reading, changing and deleting an image", () => {
  test("PUT changes the given fields and keeps the others", async () => {
    const made = expectStatus(
      await create({ name: "one", image: "busybox:1", description: "d", ttl_seconds: 60, readiness_port: 80 }),
      201,
    );
    const path = `/sandbox-images/${made.id}`;
    expect(expectStatus(await target.get(path, as(owner)), 200)).toEqual(made);
    const changed = expectStatus(await target.put(path, { ttl_seconds: null, memory_mb: 2048 }, as(owner)), 200);
    expect(changed).toEqual({ ...made, ttl_seconds: null, memory_mb: 2048, updated_at: isoMilliseconds });
    const moved = expectStatus(await target.put(path, { image: "busybox:2", enabled: false }, as(owner)), 200);
    expect(moved).toMatchObject({ image: "busybox:2", tag: "2", enabled: false, memory_mb: 2048 });
    expectInvalid(await target.put(path, { memory_mb: 1, name: "" }, as(owner)), "body.memory_mb", "body.name");
    expectInvalid(await target.put(path, { name: "a\nb" }, as(owner)), "body.name");
    expectInvalid(await target.put(path, { is_default: true }, as(owner)), "body.is_default");
    expect(expectStatus(await target.put(path, {}, as(owner)), 200)).toMatchObject({ image: "busybox:2" });
    expectStatus(await target.delete(path, as(owner)), 204);
    expectError(await target.get(path, as(owner)), "image_not_found");
    expectError(await target.delete(path, as(owner)), "image_not_found");
  });

  test("another workspace's image is not found", async () => {
    const { id } = expectStatus(await create({ name: "mine", image: "busybox" }), 201);
    for (const answer of [
      await target.get(`/sandbox-images/${id}`, as(stranger)),
      await target.put(`/sandbox-images/${id}`, { name: "x" }, as(stranger)),
      await target.delete(`/sandbox-images/${id}`, as(stranger)),
      await target.post("/sandboxes/provision", { image_id: id }, as(stranger)),
    ]) {
      expectError(answer, "image_not_found");
    }
    expectStatus(await target.get(`/sandbox-images/${id}`, as(owner)), 200);
  });
});

describe("listing images", () => {
  test("has the workspace's images and the global defaults, with the total", async () => {
    const tenant = await target.newTenant();
    const mine = expectStatus(await create({ name: "mine", image: "busybox" }, tenant), 201);
    const off = expectStatus(await create({ name: "off", image: "busybox", enabled: false }, tenant), 201);
    const all = expectStatus(await target.get("/sandbox-images", as(tenant)), 200);
    expect(all.total).toBe(all.images.length);
    const ids = all.images.map((image: { id: string }) => image.id);
    expect(ids).toEqual(expect.arrayContaining([mine.id, off.id, target.defaultImageId]));
    for (const image of all.images) {
      expect(image.is_default ? null : tenant.workspace).toBe(image.workspace_id);
    }
    const enabled = expectStatus(await target.get("/sandbox-images?enabled_only=true", as(tenant)), 200);
    expect(enabled.images.map((image: { id: string }) => image.id)).not.toContain(off.id);
    expect(enabled.total).toBe(all.total - 1);
    const allAgain = expectStatus(await target.get("/sandbox-images?enabled_only=false", as(tenant)), 200);
    expect(allAgain).toEqual(all);
    const page = expectStatus(await target.get("/sandbox-images?limit=1", as(tenant)), 200);
    expect(page).toMatchObject({ total: all.total, next_cursor: expect.any(String) });
    expect(page.images).toEqual(all.images.slice(0, 1));
  });

  test("refuses a value that is not a boolean", async () => {
    expectInvalid(await target.get("/sandbox-images?enabled_only=maybe", as(owner)), "query.enabled_only");
  });

  test("a malformed or repeated workspace header is invalid", async () => {
    expectInvalid(
      await target.get("/sandbox-images?enabled_only=maybe", { token: owner.token, workspace: "nonsense" }),
      "header.x-workspace-id",
      "query.enabled_only",
    );
    expectInvalid(
      await target.get("/sandbox-images", { token: owner.token, workspace: `${owner.workspace}, ${owner.workspace}` }),
      "header.x-workspace-id",
    );
  });
});

describe("global default images", () => {
  test("are created only by an operator, and read-only for everyone", async () => {
    const body = { name: "global", image: target.defaultReference, is_default: true };
    expectError(await create(body), "forbidden");
    const made = expectStatus(await create(body, target.operator), 201);
    expect(made).toMatchObject({ is_default: true, workspace_id: null });
    expect(expectStatus(await target.get(`/sandbox-images/${made.id}`, as(stranger)), 200)).toEqual(made);
    for (const tenant of [owner, target.operator]) {
      expectError(await target.put(`/sandbox-images/${made.id}`, { name: "x" }, as(tenant)), "image_immutable");
      expectError(await target.delete(`/sandbox-images/${made.id}`, as(tenant)), "image_immutable");
    }
  });

  test("take no registry credential", async () => {
    const body = { name: "g", image: "busybox", is_default: true, registry_id: randomUUID() };
    expectError(await create(body, target.operator), "validation_error");
  });
});
