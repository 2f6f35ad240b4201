import { once } from "node:events";
import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { createClient, type ServiceImpl } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { createInMemoryNetwork } from "@sandgate/kit/rpc/clients";
import { asFacade, callOf, type RoleName, userOf, workspaceOf } from "@sandgate/kit/rpc/context";
import { openKeyring } from "@sandgate/kit/storage/sealing";
import { ImageRegistryService } from "@sandgate/proto/imageregistry/v1/image_registry";
import { SandboxService, SandboxState } from "@sandgate/proto/sandbox/v1/sandbox";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { test } from "@sandgate/test-support/test";
import { afterEach, expect, vi } from "vitest";
import { openEnv } from "./domain/env.ts";
import { sandboxService } from "./service.ts";
import { openSqliteStore } from "./store/store.sqlite.ts";

/** The next names that are generated. */
const { names } = vi.hoisted(() => ({ names: [] as string[] }));
vi.mock("./domain/names.ts", async (importOriginal) => {
  const original = await importOriginal<typeof import("./domain/names.ts")>();
  return { ...original, generateName: () => names.shift() ?? original.generateName() };
});

afterEach(() => {
  vi.unstubAllEnvs();
});

const logger = createLogger({ service: "sandbox", level: "silent" });

const asMember = asFacade({
  requestId: newId(),
  user: { id: "ann", credential: "session", credentialId: "s1", operator: false, workspaceId: newId(), role: "member" },
});

/** The service without an engine; it isn't started, so sandboxes stay as they were accepted. */
async function open(
  folder: string,
  settings: Record<string, string>,
  workspace: Partial<ServiceImpl<typeof WorkspaceService>> = { batchGetWorkspaces: () => ({}) },
) {
  const metrics = createMetrics();
  const network = await createInMemoryNetwork();
  const bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics });
  network.serve("image-registry", {
    logger,
    metrics: createMetrics(),
    routes: (router) =>
      router.service(ImageRegistryService, {
        resolveImage: ({ imageId }) => ({ image: { imageId, reference: "alpine:3", memoryMb: 256, ttlSeconds: 60 } }),
      }),
  });
  network.serve("workspace", {
    logger,
    metrics: createMetrics(),
    routes: (router) => router.service(WorkspaceService, workspace),
  });
  const service = await sandboxService.open(
    {
      database: { kind: "sqlite", file: join(folder, "sandbox.sqlite") },
      bus,
      transport: (callee) => network.transport("sandbox", callee),
      keyring: await openKeyring({ file: join(folder, "keys.json"), create: true }),
      logger,
      metrics,
    },
    sandboxService.readSettings({ SANDGATE_DATA: folder, SANDGATE_PULL_PORT: "0", ...settings }),
  );
  network.serve("sandbox", { routes: service.routes, logger, metrics });
  return {
    client: createClient(SandboxService, network.transport("facade", "sandbox")),
    service,
    async close() {
      await service.drain();
      await service.close();
      await bus.close();
    },
  };
}

test("below the reserve of free disk nothing is provisioned, and the rest goes on", async ({ folder }) => {
  const before = await open(folder, { SANDGATE_DISK_RESERVE_MB: "0" });
  const { sandbox } = await before.client.provisionSandbox({ imageId: newId() }, asMember);
  expect((await before.service.dependencies()).disk).toBe("ok");
  await before.close();

  const { client, service, close } = await open(folder, { SANDGATE_DISK_RESERVE_MB: "1000000000" });
  await expect(client.provisionSandbox({ imageId: newId() }, asMember)).rejects.toMatchObject({
    reason: "PROVISIONING_FAILED",
    hint: expect.stringContaining("less than the reserve of 1000000000 MB (SANDGATE_DISK_RESERVE_MB)"),
  });
  expect((await service.dependencies()).disk).toContain(`on the disk of ${folder}`);
  const { sandboxes } = await client.listSandboxes({}, asMember);
  expect(sandboxes.map(({ id }) => id)).toEqual([sandbox?.id]);
  await client.stopSandbox({ idOrName: sandbox?.id ?? "" }, asMember);
  await close();
});

test("a folder that layers can't be stored in shows at the disk", async ({ folder }) => {
  await writeFile(join(folder, "pulls"), "");
  const { service, close } = await open(folder, {});
  expect((await service.dependencies()).disk).toMatch(/EEXIST.*pulls/);
  await rm(join(folder, "pulls"));
  expect((await service.dependencies()).disk).toBe("ok");
  await close();
});

test("a generated name that is taken is replaced, and one that was asked for is a conflict", async ({ folder }) => {
  const { client, close } = await open(folder, {});
  const provision = async (name = "") =>
    (await client.provisionSandbox({ imageId: newId(), name }, asMember)).sandbox?.name;
  names.push("bold-dune-1", "bold-dune-1", "bold-dune-2");
  expect([await provision(), await provision()]).toEqual(["bold-dune-1", "bold-dune-2"]);
  await expect(provision("bold-dune-2")).rejects.toMatchObject({ reason: "SANDBOX_NAME_CONFLICT" });
  await close();
});

test("environment variables are stored sealed, and shown by their names alone", async ({ folder }) => {
  const { client, close } = await open(folder, {});
  const env = { TOKEN: "s3cret-value", ANOTHER: "" };
  const { sandbox } = await client.provisionSandbox({ image: "tool", env, command: ["true"] }, asMember);
  expect(sandbox).toMatchObject({ envNames: ["ANOTHER", "TOKEN"], command: ["true"] });
  await close();
  const files = await readdir(folder);
  const stored = await Promise.all(
    files.filter((name) => name.startsWith("sandbox.sqlite")).map((name) => readFile(join(folder, name))),
  );
  expect(Buffer.concat(stored).includes("s3cret-value")).toBe(false);
  expect(Buffer.concat(stored).includes("ANOTHER")).toBe(true);
  const keyring = await openKeyring({ file: join(folder, "keys.json"), create: false });
  const store = await openSqliteStore({ file: join(folder, "sandbox.sqlite"), logger });
  const sealed = await store.sandboxes.findSealedEnv(sandbox?.id ?? "");
  const of = { id: sandbox?.id ?? "", workspaceId: sandbox?.workspaceId ?? "" };
  expect(openEnv(keyring, of, sealed ?? new Uint8Array())).toEqual(env);
  await store.close();
});

test.for([
  ["env", { env: { A: "x".repeat(65_536) } }],
  ["command", { command: [""] }],
  ["command", { command: ["sh", "x".repeat(65_536)] }],
  ["ttl_seconds", { ttlSeconds: 61 }],
] as const)("refuses a sandbox for its %s", async ([field, request], { folder }) => {
  const { client, close } = await open(folder, {});
  const provision = (request: object) => client.provisionSandbox({ image: "tool", ...request }, asMember);
  await expect(provision(request)).rejects.toMatchObject({ reason: "VALIDATION_ERROR", violations: [{ field }] });
  const most = { env: { A: "x".repeat(65_535) }, command: ["sh", "x".repeat(65_532)], ttlSeconds: 60 };
  await provision(most);
  await close();
});

test("a sandbox that isn't ready can't be extended", async ({ folder }) => {
  const { client, close } = await open(folder, {});
  const { sandbox } = await client.provisionSandbox({ image: "tool", name: "box" }, asMember);
  const extend = (idOrName: string) => client.extendSandbox({ idOrName, ttlSeconds: 60 }, asMember);
  await expect(extend("box")).rejects.toMatchObject({ reason: "SANDBOX_NOT_READY" });
  await expect(extend("other")).rejects.toMatchObject({ reason: "SANDBOX_NOT_FOUND" });
  await client.stopSandbox({ idOrName: sandbox?.id ?? "" }, asMember);
  await expect(extend("box")).rejects.toMatchObject({
    reason: "CONFLICT",
    message: expect.stringContaining("stopped_by_user"),
  });
  await close();
});

test("an operator finds and stops any sandbox; nobody else does", async ({ folder }) => {
  const { client, close } = await open(folder, {});
  const [lab, home] = [newId(), newId()];
  const by = (id: string, more: { operator?: boolean; credential?: "api_token"; workspaceId?: string }) =>
    asFacade({
      requestId: newId(),
      user: { id, credential: "session", credentialId: "s1", operator: false, role: "member", ...more },
    });
  const provision = async (id: string, workspaceId: string) =>
    (await client.provisionSandbox({ imageId: newId() }, by(id, { workspaceId }))).sandbox?.id ?? "";
  const first = await provision("ann", lab);
  const second = await provision("bob", lab);
  const third = await provision("ann", home);
  const operator = by("root", { operator: true });
  const list = async (filter: Parameters<typeof client.listAllSandboxes>[0]) =>
    (await client.listAllSandboxes(filter, operator)).sandboxes.map(({ id }) => id);
  expect(await list({})).toEqual([third, second, first]);
  expect(await list({ workspaceId: lab })).toEqual([second, first]);
  expect(await list({ userId: "ann" })).toEqual([third, first]);
  const { sandboxes, nextCursor } = await client.listAllSandboxes({ page: { limit: 2 } }, operator);
  expect(sandboxes).toHaveLength(2);
  expect(await list({ page: { limit: 2, cursor: nextCursor } })).toEqual([first]);

  const token = by("root", { operator: true, credential: "api_token" });
  for (const other of [by("ann", { workspaceId: lab }), token]) {
    await expect(client.listAllSandboxes({}, other)).rejects.toMatchObject({ reason: "FORBIDDEN" });
    await expect(client.stopAnySandbox({ sandboxId: first }, other)).rejects.toMatchObject({ reason: "FORBIDDEN" });
  }
  for (let time = 0; time < 2; time++) {
    const { sandbox } = await client.stopAnySandbox({ sandboxId: first }, operator);
    expect(sandbox).toMatchObject({ id: first, state: SandboxState.STOPPING, stateReason: "stopped_by_operator" });
  }
  expect(await list({ states: [SandboxState.STOPPING] })).toEqual([first]);
  expect(await list({ states: [SandboxState.STOPPING], userId: "bob" })).toEqual([]);
  await expect(client.stopAnySandbox({ sandboxId: newId() }, operator)).rejects.toMatchObject({
    reason: "SANDBOX_NOT_FOUND",
  });
  await close();
});

test("a user's quota counts the workspaces that have them as quota owner, whoever provisions there", async ({
  folder,
}) => {
  const [home, lab, shared] = [newId(), newId(), newId()];
  const quotaOwners = new Map([
    [home, { userId: "ann", since: 1n, abandoned: false }],
    [lab, { userId: "ann", since: 1n, abandoned: false }],
    [shared, { userId: "bob", since: 4n, abandoned: true }],
  ]);
  let isFull = true;
  const { client, close } = await open(
    folder,
    { SANDGATE_USER_MAX_SANDBOXES: "2" },
    {
      batchGetWorkspaces: ({ workspaceIds }) => ({
        quotaOwners: workspaceIds.flatMap((workspaceId) => {
          const owner = quotaOwners.get(workspaceId);
          return owner ? [{ workspaceId, ...owner }] : [];
        }),
      }),
      takeOverWorkspace(_, context) {
        if (isFull) throw new DomainError("CONFLICT", "Too many.", { hint: "You own 20." });
        const user = userOf(callOf(context));
        quotaOwners.set(workspaceOf(callOf(context)), { userId: user.id, since: 5n, abandoned: false });
        return {};
      },
    },
  );
  const provision = (userId: string, workspaceId: string, role: RoleName = "member") =>
    client.provisionSandbox(
      { imageId: newId() },
      asFacade({
        requestId: newId(),
        user: { id: userId, credential: "session", credentialId: "s1", operator: false, workspaceId, role },
      }),
    );
  const refused = (hint: string) => ({ reason: "PROVISIONING_FAILED", hint: expect.stringContaining(hint) });
  await provision("ann", home);
  await provision("carl", lab);
  await expect(provision("carl", lab)).rejects.toMatchObject(refused("may hold 2 sandboxes"));

  // Its quota owner has left: a member can't provision there, an owner does by taking it over.
  await expect(provision("carl", shared)).rejects.toMatchObject(refused("takes it over"));
  await expect(provision("dora", shared, "owner")).rejects.toMatchObject(refused("You own 20."));
  isFull = false;
  await provision("dora", shared, "owner");
  await provision("carl", shared);
  await expect(provision("carl", shared)).rejects.toMatchObject(refused("may hold 2 sandboxes"));

  // Taken over since, by somebody who holds nothing yet.
  quotaOwners.set(lab, { userId: "eve", since: 9n, abandoned: false });
  await provision("carl", lab);
  await provision("ann", home);
  await expect(provision("ann", home)).rejects.toMatchObject(refused("may hold 2 sandboxes"));
  await close();
});

test("an operator reads why sandboxes can't be run, and what to do", async ({ folder }) => {
  const socket = join(folder, "engine.sock");
  const engine = createServer((_, response) => {
    response.setHeader("Content-Type", "application/json").end("{}");
  }).listen(socket);
  await once(engine, "listening");
  // Rules aren't set on the machine that runs the tests.
  vi.stubEnv("PATH", folder);
  const { service, close } = await open(folder, { SANDGATE_RUNTIME: `docker://${socket}` });
  await service.start();
  await expect
    .poll(async () => (await service.dependencies()).runtime, { timeout: 20_000 })
    .toBe("The engine can't limit memory, processes or CPU. Enable the memory, pids and cpu cgroup controllers.");
  await close();
  engine.close();
});
