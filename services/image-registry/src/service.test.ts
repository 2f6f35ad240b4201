import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { stageEvent } from "@sandgate/kit/events/outbox";
import { createInMemoryNetwork } from "@sandgate/kit/rpc/clients";
import { asFacade, asService, onBehalfOf } from "@sandgate/kit/rpc/context";
import { openKeyring } from "@sandgate/kit/storage/sealing";
import { Role } from "@sandgate/proto/common/v1/access";
import { ImageRegistryService } from "@sandgate/proto/imageregistry/v1/image_registry";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { WorkspaceDeletedSchema } from "@sandgate/proto/workspace/v1/workspace_events";
import { findFreePort } from "@sandgate/test-support/process";
import { probeRegistry, startRegistry, type TestRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { imageRegistryService } from "./service.ts";

const logger = createLogger({ service: "image-registry", level: "silent" });
const metrics = createMetrics();
const ann = { username: "ann", password: "correct horse battery" };
const digest = `sha256:${"a".repeat(64)}`;
const cleanUps: (() => Promise<unknown>)[] = [];
const hasRegistry = await requireServer("registry", probeRegistry);

let registry: TestRegistry | undefined;
/** The role that workspace answers for everyone. */
let roleNow: Role = Role.ADMIN;
let running: Awaited<ReturnType<typeof start>>;

async function start() {
  const { path: folder, remove: removeFolder } = await createTempFolder();
  const network = await createInMemoryNetwork();
  const bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics });
  const purged: string[] = [];
  await bus.consume({
    consumer: "test",
    subjects: ["sandgate.image-registry.workspace.workspace_purged.v1"],
    async handle({ workspaceId }) {
      purged.push(workspaceId);
    },
  });
  const keyring = await openKeyring({ file: join(folder, "keys.json"), create: true });
  const settingsWith = (defaultImage: string) =>
    imageRegistryService.readSettings({
      SANDGATE_REGISTRY_ALLOW: "127.0.0.0/8",
      SANDGATE_DEFAULT_IMAGE: defaultImage,
      SANDGATE_WORKSPACE_MAX_IMAGES: "3",
      SANDGATE_WORKSPACE_MAX_REGISTRIES: "2",
    });
  const open = (defaultImage: string) =>
    imageRegistryService.open(
      {
        database: { kind: "sqlite", file: join(folder, "image-registry.sqlite") },
        bus,
        transport: (callee) => network.transport("image-registry", callee),
        keyring,
        logger,
        metrics,
      },
      settingsWith(defaultImage),
    );
  const first = await open("Default=example/default:0.1.0");
  network.serve("image-registry", { routes: first.routes, logger, metrics });
  network.serve("workspace", {
    logger,
    metrics: createMetrics(),
    routes: (router) =>
      router.service(WorkspaceService, {
        batchGetWorkspaces: ({ workspaceIds }) => ({
          workspaces: workspaceIds.filter((id) => id !== "gone").map((id) => ({ id, role: roleNow })),
        }),
      }),
  });
  await first.start();
  await createClient(ImageRegistryService, network.transport("facade", "image-registry")).createImage(
    { name: "left over", image: "alpine" },
    as("gone"),
  );
  await first.drain();
  await first.close();
  // Opened again, to show what only the first start does, and what a later one changes.
  const service = await open("Default=localhost/sandgate/default:1,8080");
  network.serve("image-registry", { routes: service.routes, logger, metrics });
  await service.start();
  cleanUps.push(async () => {
    await service.drain();
    await service.close();
    await bus.close();
    await removeFolder();
  });
  return { bus, folder, network, purged, service };
}

beforeAll(async () => {
  if (hasRegistry) registry = await startRegistry({ users: [ann] });
  running = await start();
});
afterAll(async () => {
  for (const cleanUp of cleanUps) await cleanUp();
  await registry?.stop();
});

const client = () => createClient(ImageRegistryService, running.network.transport("facade", "image-registry"));
const sandbox = () => createClient(ImageRegistryService, running.network.transport("sandbox", "image-registry"));

function as(workspaceId: string, o: { operator?: boolean; role?: "member" | "admin"; key?: string } = {}) {
  return asFacade({
    requestId: newId(),
    user: {
      id: "ann",
      credential: "session",
      credentialId: "s1",
      operator: o.operator ?? false,
      workspaceId,
      role: o.role ?? "admin",
    },
    idempotencyKey: o.key,
  });
}

const refused = (reason: string, field?: string) =>
  expect.objectContaining({
    reason,
    ...(field && { violations: [expect.objectContaining({ field })] }),
  });

test("an image is created, read, listed with the defaults, changed and deleted", async () => {
  const workspace = newId();
  const { image } = await client().createImage({ name: "tool", image: "alpine:3.20" }, as(workspace));
  expect(image).toMatchObject({
    name: "tool",
    image: "alpine:3.20",
    tag: "3.20",
    enabled: true,
    isDefault: false,
    memoryMb: 1024,
    workspaceId: workspace,
    registryId: "",
  });
  const imageId = image?.id ?? "";
  expect((await client().getImage({ imageId }, as(workspace))).image).toEqual(image);
  const list = await client().listImages({}, as(workspace));
  expect(list.total).toBe(2);
  expect(list.images.map(({ name, isDefault }) => [name, isDefault])).toEqual([
    ["tool", false],
    ["Default", true],
  ]);
  const changed = await client().updateImage({ imageId, enabled: false, ttlSeconds: 60 }, as(workspace));
  expect(changed.image).toMatchObject({ enabled: false, ttlSeconds: 60, name: "tool" });
  expect(await client().listImages({ enabledOnly: true }, as(workspace))).toMatchObject({
    total: 1,
    images: [{ name: "Default" }],
  });
  await client().deleteImage({ imageId }, as(workspace));
  await expect(client().getImage({ imageId }, as(workspace))).rejects.toThrow(refused("IMAGE_NOT_FOUND"));
});

test("pages count the whole list", async () => {
  const workspace = newId();
  for (const name of ["1", "2", "3"]) await client().createImage({ name, image: "alpine" }, as(workspace));
  const first = await client().listImages({ page: { limit: 3 } }, as(workspace));
  expect(first).toMatchObject({ total: 4, images: [{ name: "3" }, { name: "2" }, { name: "1" }] });
  const rest = await client().listImages({ page: { limit: 3, cursor: first.nextCursor } }, as(workspace));
  expect(rest).toMatchObject({ total: 4, images: [{ name: "Default" }], nextCursor: "" });
});

test("the same Idempotency-Key gives the first image again", async () => {
  const workspace = newId();
  const options = { key: newId() };
  const create = (name: string) => client().createImage({ name, image: "alpine" }, as(workspace, options));
  const [first, again] = await Promise.all([create("tool"), create("tool")]);
  expect(again).toEqual(first);
  await expect(create("other")).rejects.toThrow(refused("CONFLICT"));
  expect((await client().listImages({}, as(workspace))).total).toBe(2);
});

test("a workspace has no more images than it may, and a retry of the last one still gets it", async () => {
  const workspace = newId();
  const create = (options?: { key: string }) =>
    client().createImage({ name: "tool", image: "alpine" }, as(workspace, options));
  const last = { key: newId() };
  await create();
  await create();
  const { image } = await create(last);
  await expect(create()).rejects.toMatchObject({
    reason: "CONFLICT",
    hint: expect.stringContaining("may have 3 images"),
  });
  expect((await create(last)).image).toEqual(image);
  await client().deleteImage({ imageId: image?.id ?? "" }, as(workspace));
  await create();
});

test("only an operator makes a global default image, and nobody changes one", async () => {
  const request = { name: "shared", image: "debian", isDefault: true };
  await expect(client().createImage(request, as(newId()))).rejects.toThrow(refused("FORBIDDEN"));
  const { image } = await client().createImage(request, as(newId(), { operator: true }));
  expect(image).toMatchObject({ isDefault: true, workspaceId: "" });
  const imageId = image?.id ?? "";
  const asOperator = as(newId(), { operator: true });
  expect((await client().getImage({ imageId }, as(newId()))).image?.isDefault).toBe(true);
  await expect(client().updateImage({ imageId, name: "x" }, asOperator)).rejects.toThrow(refused("IMAGE_IMMUTABLE"));
  await expect(client().deleteImage({ imageId }, asOperator)).rejects.toThrow(refused("IMAGE_IMMUTABLE"));
});

test("another workspace's image is not found", async () => {
  const { image } = await client().createImage({ name: "tool", image: "alpine" }, as(newId()));
  const imageId = image?.id ?? "";
  const other = as(newId());
  await expect(client().getImage({ imageId }, other)).rejects.toThrow(refused("IMAGE_NOT_FOUND"));
  await expect(client().updateImage({ imageId }, other)).rejects.toThrow(refused("IMAGE_NOT_FOUND"));
  await expect(client().deleteImage({ imageId }, other)).rejects.toThrow(refused("IMAGE_NOT_FOUND"));
});

test("a member may read, but not write", async () => {
  const asMember = as(newId(), { role: "member" });
  await client().listImages({}, asMember);
  await expect(client().createImage({ name: "tool", image: "alpine" }, asMember)).rejects.toThrow(
    refused("INSUFFICIENT_ROLE"),
  );
});

test("what is wrong with an image is reported by field", async () => {
  const create = (fields: object) => client().createImage({ name: "tool", image: "alpine", ...fields }, as(newId()));
  await expect(create({ image: "no image" })).rejects.toThrow(refused("VALIDATION_ERROR", "image"));
  for (const host of ["ghcr.io:0", "ghcr.io:100000", "[1:2]"]) {
    await expect(create({ image: `${host}/tool` })).rejects.toThrow(refused("VALIDATION_ERROR", "image"));
  }
  await expect(create({ name: "two\nlines" })).rejects.toThrow(refused("VALIDATION_ERROR", "name"));
  await expect(create({ image: "10.0.0.1/tool" })).rejects.toThrow(refused("VALIDATION_ERROR", "image"));
  await expect(create({ image: "alpine:1", tag: "2" })).rejects.toThrow(refused("VALIDATION_ERROR", "tag"));
  await expect(create({ memoryMb: 255 })).rejects.toThrow(refused("VALIDATION_ERROR", "memory_mb"));
  await expect(create({ registryId: newId() })).rejects.toThrow(refused("REGISTRY_NOT_FOUND"));
});

test("a sandbox gets the snapshot of an enabled image", async () => {
  const workspace = newId();
  const asUser = as(workspace);
  const { image } = await client().createImage(
    { name: "tool", image: `ghcr.io/a/b:1@${digest}`, readinessPort: 80, memoryMb: 512 },
    asUser,
  );
  const imageId = image?.id ?? "";
  const resolve = (id: string, workspaceId: string) =>
    sandbox().resolveImage(
      { imageId: id },
      onBehalfOf({
        requestId: newId(),
        user: { id: "ann", credential: "session", credentialId: "s1", operator: false, workspaceId, role: "member" },
        signal: new AbortController().signal,
        timeoutMs: () => undefined,
      }),
    );
  expect((await resolve(imageId, workspace)).image).toMatchObject({
    imageId,
    reference: `ghcr.io/a/b@${digest}`,
    memoryMb: 512,
    readinessPort: 80,
    registryId: "",
    isDefault: false,
  });
  const { images } = await client().listImages({}, asUser);
  const shared = images.find(({ name }) => name === "Default");
  expect((await resolve(shared?.id ?? "", workspace)).image).toMatchObject({
    reference: "localhost/sandgate/default:1",
    readinessPort: 8080,
    isDefault: true,
  });
  await expect(resolve(imageId, newId())).rejects.toThrow(refused("IMAGE_NOT_FOUND"));
  await client().updateImage({ imageId, enabled: false }, asUser);
  await expect(resolve(imageId, workspace)).rejects.toThrow(refused("IMAGE_DISABLED"));
});

test("a sandbox gets an image by its name: the workspace's own, else the default, and none of two", async () => {
  const workspace = newId();
  const call = onBehalfOf({
    requestId: newId(),
    user: {
      id: "ann",
      credential: "session",
      credentialId: "s1",
      operator: false,
      workspaceId: workspace,
      role: "member",
    },
    signal: new AbortController().signal,
    timeoutMs: () => undefined,
  });
  const resolve = (image: string) => sandbox().resolveImage({ image }, call);
  expect((await resolve("Default")).image?.isDefault).toBe(true);
  const { image: own } = await client().createImage({ name: "Default", image: "alpine:3" }, as(workspace));
  expect((await resolve("Default")).image?.imageId).toBe(own?.id);
  expect((await resolve(own?.id ?? "")).image?.imageId).toBe(own?.id);
  await client().createImage({ name: "Default", image: "alpine:4" }, as(workspace));
  await expect(resolve("Default")).rejects.toThrow(refused("CONFLICT"));
  await expect(resolve("other")).rejects.toThrow(refused("IMAGE_NOT_FOUND"));
  await client().updateImage({ imageId: own?.id ?? "", name: "Off", enabled: false }, as(workspace));
  await expect(resolve("Off")).rejects.toThrow(refused("IMAGE_DISABLED"));
});

describe.runIf(hasRegistry)("with a private registry", () => {
  const credential = () => ({ name: "private", url: `http://${registry?.host}`, ...ann });

  test("a workspace has no more of them than it may", async () => {
    const asAnn = as(newId());
    const create = (name: string) => client().createRegistry({ ...credential(), name }, asAnn);
    const { registry: first } = await create("first");
    await create("second");
    await expect(create("third")).rejects.toMatchObject({
      reason: "CONFLICT",
      hint: expect.stringContaining("may have 2 registry credentials"),
    });
    await client().deleteRegistry({ registryId: first?.id ?? "" }, asAnn);
    await create("third");
  });

  test("a credential is tried before it is stored, and its password is kept sealed", async () => {
    const workspace = newId();
    const { registry: shown } = await client().createRegistry(credential(), as(workspace));
    expect(shown).toMatchObject({ name: "private", username: "ann", url: `http://${registry?.host}` });
    for (const file of await readdir(running.folder)) {
      expect((await readFile(join(running.folder, file))).includes(ann.password)).toBe(false);
    }
    const create = (fields: object) => client().createRegistry({ ...credential(), ...fields }, as(workspace));
    await expect(create({})).rejects.toThrow(refused("CONFLICT"));
    await expect(create({ name: "b", password: "wrong" })).rejects.toThrow(refused("VALIDATION_ERROR", "password"));
    await expect(create({ name: "b", url: `127.0.0.1:${await findFreePort()}` })).rejects.toThrow(
      refused("UPSTREAM_ERROR"),
    );
    await expect(create({ name: "two\nlines" })).rejects.toThrow(refused("VALIDATION_ERROR", "name"));
    await expect(create({ name: "b", url: "http://ghcr.io" })).rejects.toThrow(refused("VALIDATION_ERROR", "url"));
    await expect(create({ name: "b", url: "10.0.0.1" })).rejects.toThrow(refused("VALIDATION_ERROR", "url"));
    await expect(create({ name: "b", url: "ghcr.io/path" })).rejects.toThrow(refused("VALIDATION_ERROR", "url"));
    expect((await client().listRegistries({}, as(workspace))).registries).toEqual([shown]);
    await expect(client().getRegistry({ registryId: shown?.id ?? "" }, as(newId()))).rejects.toThrow(
      refused("REGISTRY_NOT_FOUND"),
    );
  });

  test("is not stored or changed for somebody who lost the role while it was tried", async () => {
    const asAnn = as(newId());
    const registryId = (await client().createRegistry(credential(), asAnn)).registry?.id ?? "";
    const lost: [Role, string][] = [
      [Role.MEMBER, "INSUFFICIENT_ROLE"],
      [Role.UNSPECIFIED, "WORKSPACE_FORBIDDEN"],
    ];
    for (const [role, reason] of lost) {
      try {
        roleNow = role;
        await expect(client().createRegistry({ ...credential(), name: "late" }, asAnn)).rejects.toThrow(
          refused(reason),
        );
        const change = { registryId, name: "late", ...ann };
        await expect(client().updateRegistry(change, asAnn)).rejects.toThrow(refused(reason));
      } finally {
        roleNow = Role.ADMIN;
      }
    }
    await expect(client().createRegistry({ ...credential(), name: "late" }, as("gone"))).rejects.toThrow(
      refused("WORKSPACE_FORBIDDEN"),
    );
    const { registries } = await client().listRegistries({}, asAnn);
    expect(registries.map(({ name }) => name)).toEqual(["private"]);
  });

  test("its url and username change only with the password", async () => {
    const asAnn = as(newId());
    const registryId = (await client().createRegistry(credential(), asAnn)).registry?.id ?? "";
    const renamed = await client().updateRegistry({ registryId, name: "renamed" }, asAnn);
    expect(renamed.registry?.name).toBe("renamed");
    await expect(client().updateRegistry({ registryId, username: "bob" }, asAnn)).rejects.toThrow(
      refused("VALIDATION_ERROR", "password"),
    );
    await expect(client().updateRegistry({ registryId, password: "wrong" }, asAnn)).rejects.toThrow(
      refused("VALIDATION_ERROR", "password"),
    );
    const moved = await client().updateRegistry({ registryId, url: registry?.host ?? "", ...ann }, asAnn);
    expect(moved.registry?.url).toBe(registry?.host);
  });

  test("an image at its host may use it, and then it can't be deleted", async () => {
    const asAnn = as(newId());
    const registryId = (await client().createRegistry(credential(), asAnn)).registry?.id ?? "";
    await expect(client().createImage({ name: "tool", image: "alpine", registryId }, asAnn)).rejects.toThrow(
      refused("VALIDATION_ERROR", "registry_id"),
    );
    const { image } = await client().createImage(
      { name: "tool", image: `${registry?.host}/team/tool`, registryId },
      asAnn,
    );
    expect(image).toMatchObject({ registryId, registryName: "private" });
    await expect(client().deleteRegistry({ registryId }, asAnn)).rejects.toThrow(refused("CONFLICT"));
    await client().updateImage({ imageId: image?.id ?? "", clear: ["registry_id"] }, asAnn);
    await client().deleteRegistry({ registryId }, asAnn);
  });

  test("a pull is authorized with the workspace's own credential only", async () => {
    const workspaceId = newId();
    const registryId = (await client().createRegistry(credential(), as(workspaceId))).registry?.id ?? "";
    const pull = (request: { workspaceId: string; registryId?: string; reference?: string }) =>
      sandbox().authorizePull({ reference: `${registry?.host}/team/none:1`, ...request }, asService());
    await expect(pull({ workspaceId, registryId })).rejects.toThrow(refused("IMAGE_NOT_FOUND_IN_REGISTRY"));
    await expect(pull({ workspaceId })).rejects.toThrow(refused("IMAGE_PULL_UNAUTHORIZED"));
    await expect(pull({ workspaceId: newId(), registryId })).rejects.toThrow(refused("IMAGE_PULL_UNAUTHORIZED"));
    await expect(pull({ workspaceId, registryId, reference: "docker.io/library/alpine:1" })).rejects.toThrow(
      refused("IMAGE_PULL_UNAUTHORIZED"),
    );
    await expect(pull({ workspaceId, reference: `127.0.0.1:${await findFreePort()}/a:1` })).rejects.toThrow(
      refused("REGISTRY_UNREACHABLE"),
    );
  });
});

test("a deleted workspace is purged, and accepts nothing new", async () => {
  const workspace = newId();
  await client().createImage({ name: "tool", image: "alpine" }, as(workspace));
  await running.bus.publish([
    stageEvent({
      subject: "sandgate.workspace.workspace.deleted.v1",
      entityId: workspace,
      entityVersion: 2,
      workspaceId: workspace,
      schema: WorkspaceDeletedSchema,
      payload: { workspaceId: workspace },
    }),
  ]);
  await until(() => expect(running.purged).toContain(workspace));
  expect((await client().listImages({}, as(workspace))).images.map(({ name }) => name)).not.toContain("tool");
  await expect(client().createImage({ name: "late", image: "alpine" }, as(workspace))).rejects.toThrow(
    refused("WORKSPACE_FORBIDDEN"),
  );
});

test("what belongs to a workspace that the workspace service has lost stays until an operator names it", async () => {
  const { service, purged } = running;
  const run = (name: string, ...options: string[]) => service.commands?.[name]?.(new Set(options));
  expect(await run("list-unknown-workspaces")).toEqual({ count: 1, workspace_ids: ["gone"] });
  expect((await client().listImages({}, as("gone"))).images).toContainEqual(
    expect.objectContaining({ name: "left over" }),
  );
  expect(purged).not.toContain("gone");
  expect(await run("purge-workspaces", "gone")).toEqual({ purging: ["gone"] });
  await until(() => expect(purged).toContain("gone"));
  expect(await run("list-unknown-workspaces")).toEqual({ count: 0, workspace_ids: [] });
});
