import { randomUUID } from "node:crypto";
import { buildImage, openTestEngine, probeEngine, type TestImage } from "@sandgate/test-support/images";
import { findFreePort } from "@sandgate/test-support/process";
import { probeRegistry, startRegistry, type TestRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectInvalid, expectStatus, isoMilliseconds, uniqueName, uuid } from "./client.ts";
import { openTarget, requireSettings, type Target, type Tenant } from "./target.ts";

const hasRegistry =
  (await requireSettings()) &&
  (await requireServer("docker", probeEngine)) &&
  (await requireServer("registry", probeRegistry));

const credential = { username: "puller", password: "pull-secret-1" };
const rival = { username: "rival", password: "rival-secret-1" };

describe.runIf(hasRegistry)("registry credentials at a real private registry", { timeout: 300_000 }, () => {
  let registry: TestRegistry;
  let target: Target;
  let owner: Tenant;
  let stranger: Tenant;
  let unreachable: string;
  let image: TestImage;
  let digest: string;
  const engine = openTestEngine();
  const repository = `team/${uniqueName("app")}`;

  const as = (tenant: Tenant) => ({ token: tenant.token, workspace: tenant.workspace });
  const register = (body: object = {}, tenant = owner) =>
    target.post(
      "/registries",
      { name: uniqueName("r"), url: `http://${registry.host}`, ...credential, ...body },
      as(tenant),
    );
  const imageOf = async (body: object, tenant = owner): Promise<string> =>
    expectStatus(await target.post("/sandbox-images", { name: "private", memory_mb: 256, ...body }, as(tenant)), 201)
      .id;
  const outcomeOf = async (imageId: string, tenant = owner) => {
    const { id } = expectStatus(await target.post("/sandboxes/provision", { image_id: imageId }, as(tenant)), 201);
    await target.post("/sandboxes/wait", { sandbox_id: id, timeout_seconds: 240 }, as(tenant));
    const record = expectStatus(await target.get(`/sandboxes/${id}`, as(tenant)), 200);
    expectStatus(await target.delete(`/sandboxes/${id}`, as(tenant)), 204);
    return record;
  };

  beforeAll(async () => {
    registry = await startRegistry({ users: [credential, rival] });
    unreachable = `127.0.0.1:${await findFreePort()}`;
    image = await buildImage(engine, { command: ["/bin/sleep", "600"] });
    digest = await registry.push(engine, image.id, repository, "v1", credential);
    await image.remove();
    target = await openTarget({ SANDGATE_REGISTRY_ALLOW: `${registry.host},${unreachable}` });
    [owner, stranger] = [await target.newTenant(), await target.newTenant()];
  });
  afterAll(async () => {
    await target?.close();
    await engine
      .getImage(image?.id ?? "")
      .remove({ force: true })
      .catch(() => undefined);
    await registry?.stop();
  });

  test("are created, and their password is never shown", async () => {
    const name = uniqueName("r");
    const answer = await register({ name });
    const created = expectStatus(answer, 201);
    expect(created).toEqual({
      id: uuid,
      name,
      url: `http://${registry.host}`,
      username: credential.username,
      workspace_id: owner.workspace,
      created_at: isoMilliseconds,
      updated_at: isoMilliseconds,
    });
    expect(expectStatus(await target.get(`/registries/${created.id}`, as(owner)), 200)).toEqual(created);
    const list = await target.get("/registries", as(owner));
    expect(expectStatus(list, 200).registries).toContainEqual(created);
    expect(answer.text + list.text).not.toContain(credential.password);
    expectError(await register({ name }), "conflict");
  });

  test("are checked against the registry", async () => {
    expectInvalid(await register({ password: "wrong" }), "body.password");
    expectError(await register({ url: `http://${unreachable}` }), "upstream_error");
  });

  test("need a valid address of an allowed host", async () => {
    for (const url of ["", "ftp://a.example", "http://a.example/path", "not a host", "http://user:pw@a.example"]) {
      expectInvalid(await register({ url }), "body.url");
    }
    for (const name of ["a\u0000b", "a\nb"]) {
      expectInvalid(await register({ name }), "body.name");
    }
    for (const url of [
      "http://127.0.0.1:1",
      "http://169.254.169.254",
      "10.1.2.3",
      "http://localhost:1",
      "http://[::1]:1",
    ]) {
      expectInvalid(await register({ url }), "body.url");
    }
    expectInvalid(
      await target.post("/registries", {}, as(owner)),
      "body.name",
      "body.url",
      "body.username",
      "body.password",
    );
  });

  test("can be changed, with the password for a new address or user", async () => {
    const { id } = expectStatus(await register(), 201);
    const path = `/registries/${id}`;
    const name = uniqueName("renamed");
    expect(expectStatus(await target.put(path, { name }, as(owner)), 200)).toMatchObject({ id, name });
    expectInvalid(await target.put(path, { username: rival.username }, as(owner)), "body.password");
    expectInvalid(await target.put(path, { ...rival, password: "wrong" }, as(owner)), "body.password");
    expect(expectStatus(await target.put(path, rival, as(owner)), 200)).toMatchObject({ username: rival.username });
  });

  test("can't be deleted while an image uses them, and are shown on the image", async () => {
    const { id, name } = expectStatus(await register(), 201);
    const imageId = await imageOf({ image: `${registry.host}/${repository}:v1`, registry_id: id });
    const shown = expectStatus(await target.get(`/sandbox-images/${imageId}`, as(owner)), 200);
    expect(shown).toMatchObject({ registry_id: id, registry_name: name });
    expectError(await target.delete(`/registries/${id}`, as(owner)), "conflict");
    expectStatus(await target.delete(`/sandbox-images/${imageId}`, as(owner)), 204);
    expectStatus(await target.delete(`/registries/${id}`, as(owner)), 204);
    expectError(await target.get(`/registries/${id}`, as(owner)), "registry_not_found");
  });

  test("belong to one workspace and to one host", async () => {
    const { id } = expectStatus(await register(), 201);
    for (const answer of [
      await target.get(`/registries/${id}`, as(stranger)),
      await target.put(`/registries/${id}`, { name: "x" }, as(stranger)),
      await target.delete(`/registries/${id}`, as(stranger)),
      await target.post(
        "/sandbox-images",
        { name: "stolen", image: `${registry.host}/${repository}`, registry_id: id },
        as(stranger),
      ),
    ]) {
      expectError(answer, "registry_not_found");
    }
    expectInvalid(
      await target.post(
        "/sandbox-images",
        { name: "n", image: "docker.io/library/busybox", registry_id: id },
        as(owner),
      ),
      "body.registry_id",
    );
  });

  test("pull a private image, by digest", async () => {
    const { id } = expectStatus(await register(), 201);
    const imageId = await imageOf({ image: `${registry.host}/${repository}`, tag: "v1", registry_id: id });
    const sandbox = await outcomeOf(imageId);
    expect([sandbox.state, sandbox.state_reason, sandbox.image_digest]).toEqual(["ready", null, digest]);
  });

  test("another tenant can't run it from the engine's cache", async () => {
    // The test before left the image on the engine.
    const withoutCredential = await imageOf({ image: `${registry.host}/${repository}:v1` }, stranger);
    expect(await outcomeOf(withoutCredential, stranger)).toMatchObject({
      state: "failed",
      state_reason: "image_pull_unauthorized",
    });
    const byDigest = await imageOf({ image: `${registry.host}/${repository}@${digest}` }, stranger);
    expect(await outcomeOf(byDigest, stranger)).toMatchObject({
      state: "failed",
      state_reason: "image_pull_unauthorized",
    });
  });

  test("a missing image and an unreachable registry have different reasons", async () => {
    const { id } = expectStatus(await register(), 201);
    const missing = await imageOf({ image: `${registry.host}/no/such`, registry_id: id });
    expect(await outcomeOf(missing)).toMatchObject({ state: "failed", state_reason: "image_not_found_in_registry" });
    const imageId = await imageOf({ image: `${unreachable}/some/app` });
    expect(await outcomeOf(imageId)).toMatchObject({ state: "failed", state_reason: "registry_unreachable" });
  });

  test("an id that is not a UUID is not found", async () => {
    expectError(await target.get("/registries/opaque", as(owner)), "registry_not_found");
    expectError(await target.delete(`/registries/${randomUUID()}`, as(owner)), "registry_not_found");
  });
});
