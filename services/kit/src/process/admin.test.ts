import { execFile, spawnSync } from "node:child_process";
import { once } from "node:events";
import { renameSync, statSync } from "node:fs";
import { chmod, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { create } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { EventSchema } from "@sandgate/proto/common/v1/event";
import { WorkspaceDeletedSchema } from "@sandgate/proto/workspace/v1/workspace_events";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createLogger } from "../base/logging.ts";
import { counter, createMetrics } from "../base/metrics.ts";
import type { DeadLetter, DeadLetters } from "../events/bus.ts";
import { type Commands, mergeCommands } from "./admin.commands.ts";
import { askSocket } from "./admin.socket.ts";
import { type AdminServer, startAdminServer } from "./admin.ts";

const logger = createLogger({ service: "test", level: "silent" });

test("operators see health, readiness with every dependency's state, and metrics of all registries", async () => {
  const registries = [createMetrics({ processMetrics: true }), createMetrics()] as const;
  const definition = { name: "sandgate_things_total", help: "Things.", labelNames: ["service"] as const };
  counter(registries[0], definition).inc({ service: "a" }, 2);
  counter(registries[1], definition).inc({ service: "b" }, 3);
  counter(registries[1], definition).inc({ service: "b" });
  let ready = false;
  let fail = false;
  const admin = await startAdminServer({
    host: "127.0.0.1",
    port: 0,
    socket: undefined,
    registries,
    logger,
    ready: () => ready,
    async dependencies() {
      if (fail) throw new Error("can't say");
      return { engine: "ok", database: "connection refused" };
    },
    deadLetters: () => undefined,
    commands: () => undefined,
  });
  const get = async (path: string) => {
    const response = await fetch(`${admin.url}${path}`);
    return { status: response.status, body: await response.text() };
  };
  try {
    expect((await get("/healthz")).status).toBe(200);
    expect((await get("/readyz")).status).toBe(503);
    ready = true;
    const readyz = await get("/readyz");
    expect(readyz.status).toBe(200);
    expect(JSON.parse(readyz.body)).toEqual({
      ready: true,
      dependencies: { engine: "ok", database: "connection refused" },
    });
    const { body } = await get("/metrics");
    expect(body).toContain('sandgate_things_total{service="a"} 2');
    expect(body).toContain('sandgate_things_total{service="b"} 4');
    expect(body).toContain('sandgate_dependency_up{dependency="engine"} 1');
    expect(body).toContain('sandgate_dependency_up{dependency="database"} 0');
    expect(body).toContain("process_cpu_seconds_total");
    expect(body.match(/^# TYPE sandgate_things_total/gm)).toHaveLength(1);
    fail = true;
    expect(await get("/readyz")).toMatchObject({ status: 200, body: expect.stringContaining("can't say") });
    expect((await get("/else")).status).toBe(404);
  } finally {
    await admin.close();
  }
});

describe("what is for operators alone:", () => {
  const letterOf = (id: string): DeadLetter => ({
    id,
    consumer: "sandbox-purges",
    event: create(EventSchema, {
      eventId: id.split(".")[1] ?? "",
      subject: "sandgate.workspace.workspace.deleted.v1",
      entityId: "w",
      entityVersion: 7n,
      workspaceId: "w",
      payload: anyPack(WorkspaceDeletedSchema, create(WorkspaceDeletedSchema, { workspaceId: "w" })),
    }),
    attempts: 12,
    error: "the disk is full",
    failedAt: new Date(0),
  });
  let letters: Map<string, DeadLetter>;
  let isConnected: boolean;
  let admin: AdminServer;
  let start: (socket: string) => Promise<AdminServer>;
  let folder: string;
  let socket: string;
  let removeFolder: () => Promise<void>;

  beforeEach(async () => {
    letters = new Map(["sandbox-purges.a", "sandbox-purges.b"].map((id) => [id, letterOf(id)]));
    isConnected = true;
    const deadLetters: DeadLetters = {
      list: async ({ limit, afterId = "" }) => [...letters.values()].filter(({ id }) => id > afterId).slice(0, limit),
      get: async (id) => letters.get(id),
      async replay(id) {
        if (id === "sandbox-purges.b") throw new Error("the consumer sandbox-purges failed again: the disk is full");
        return letters.delete(id);
      },
      drop: async (id) => letters.delete(id),
    };
    const commands: Commands = {
      async count(options) {
        if (options.has("fail")) throw new Error("can't count");
        return { options: [...options] };
      },
    };
    start = (socket) =>
      startAdminServer({
        host: "127.0.0.1",
        port: 0,
        socket,
        registries: [createMetrics()],
        logger,
        ready: () => true,
        dependencies: async () => ({}),
        deadLetters: () => (isConnected ? deadLetters : undefined),
        commands: () => (isConnected ? commands : undefined),
      });
    ({ path: folder, remove: removeFolder } = await createTempFolder());
    socket = join(folder, "admin.sock");
    admin = await start(socket);
  });
  afterEach(async () => {
    await admin.close();
    await removeFolder();
  });

  const ask = async ({ method = "GET", at = "/dead-letters", path = "" } = {}) => {
    const { status, body } = await askSocket(socket, method, `${at}${path}`);
    return { status, ...(status !== 204 && { body: JSON.parse(body) }) };
  };
  const summary = {
    consumer: "sandbox-purges",
    subject: "sandgate.workspace.workspace.deleted.v1",
    entity_id: "w",
    workspace_id: "w",
    attempts: 12,
    error: "the disk is full",
    failed_at: "1970-01-01T00:00:00.000Z",
  };

  test("dead letters are listed, shown whole, replayed and dropped", async () => {
    expect(await ask()).toEqual({
      status: 200,
      body: { dead_letters: [...letters.keys()].map((id) => ({ id, ...summary })) },
    });
    expect((await ask({ path: "?after=sandbox-purges.a" })).body).toMatchObject({
      dead_letters: [{ id: "sandbox-purges.b" }],
    });
    expect(await ask({ path: "/sandbox-purges.a" })).toEqual({
      status: 200,
      body: {
        id: "sandbox-purges.a",
        ...summary,
        event: {
          eventId: "a",
          subject: "sandgate.workspace.workspace.deleted.v1",
          entityId: "w",
          entityVersion: "7",
          workspaceId: "w",
          payload: { "@type": "type.googleapis.com/sandgate.workspace.v1.WorkspaceDeleted", workspaceId: "w" },
        },
      },
    });
    expect(await ask({ method: "POST", path: "/sandbox-purges.a/replay" })).toEqual({ status: 204 });
    expect(await ask({ method: "POST", path: "/sandbox-purges.b/replay" })).toEqual({
      status: 500,
      body: { error: "the consumer sandbox-purges failed again: the disk is full" },
    });
    expect([...letters.keys()]).toEqual(["sandbox-purges.b"]);
    expect(await ask({ method: "DELETE", path: "/sandbox-purges.b" })).toEqual({ status: 204 });
    expect([...letters.keys()]).toEqual([]);
    for (const [method, path] of [
      ["GET", "/sandbox-purges.a"],
      ["POST", "/sandbox-purges.a/replay"],
      ["DELETE", "/sandbox-purges.a"],
    ] as const) {
      expect(await ask({ method, path })).toEqual({ status: 404, body: { error: "no such dead letter" } });
    }
  });

  test("a payload of a dead letter that can't be read is shown as its bytes", async () => {
    const broken = letterOf("sandbox-purges.c");
    broken.event.payload = {
      $typeName: "google.protobuf.Any",
      typeUrl: "type.example/of.Tomorrow",
      value: Buffer.from("x"),
    };
    letters.set(broken.id, broken);
    expect((await ask({ path: "/sandbox-purges.c" })).body).toMatchObject({
      event: { eventId: "c", entityId: "w" },
      payload_bytes: Buffer.from("x").toString("base64"),
    });
  });

  test("no other user of the machine reaches it, and the port has none of it", async () => {
    expect(statSync(socket).mode & 0o777).toBe(0o600);
    if (process.getuid?.() === 0) {
      await chmod(folder, 0o755);
      const nobody = { uid: 65_534, gid: 65_534 };
      const is = (flag: string) => spawnSync("test", [flag, socket], nobody).status === 0;
      // Connecting takes the right to write.
      expect({ isThere: is("-S"), isOpen: is("-w") }).toEqual({ isThere: true, isOpen: false });
    }
    for (const [method, path] of [
      ["GET", "/dead-letters"],
      ["POST", "/dead-letters/sandbox-purges.a/replay"],
      ["DELETE", "/dead-letters/sandbox-purges.a"],
      ["POST", "/commands/count"],
    ] as const) {
      expect((await fetch(`${admin.url}${path}`, { method })).status).toBe(404);
    }
    expect(letters.size).toBe(2);
    expect((await fetch(`${admin.url}/metrics`)).status).toBe(200);
  });

  test("a socket that a crash has left is replaced, and other files are not", async () => {
    await admin.close();
    const crashed = createServer().listen(join(folder, "crashed"));
    await once(crashed, "listening");
    renameSync(join(folder, "crashed"), socket);
    crashed.close();
    admin = await start(socket);
    expect((await ask()).status).toBe(200);
    await writeFile(join(folder, "file"), "kept");
    await expect(start(join(folder, "file"))).rejects.toThrow("EADDRINUSE");
  });

  test("it waits for the event bus and the services", async () => {
    isConnected = false;
    expect(await ask()).toEqual({ status: 503, body: { error: "not connected to the event bus yet" } });
    expect((await ask({ method: "POST", at: "/commands", path: "/count" })).status).toBe(503);
  });

  test("commands are run by their names, with options", async () => {
    const run = (path: string) => ask({ method: "POST", at: "/commands", path });
    expect(await run("/count")).toEqual({ status: 200, body: { options: [] } });
    expect(await run("/count?option=a&option=b")).toEqual({ status: 200, body: { options: ["a", "b"] } });
    expect(await run("/count?option=fail")).toEqual({ status: 500, body: { error: "can't count" } });
    for (const unknown of ["/other", "/toString"]) expect((await run(unknown)).status).toBe(404);
    expect((await ask({ at: "/commands", path: "/count" })).status).toBe(404);
  });

  test("a command that several services of a process have runs in each of them", async () => {
    const merged = mergeCommands({
      sandbox: { commands: { purge: async (options) => ({ sandbox: [...options] }) } },
      identity: { commands: { rotate: async () => ({ done: true }) } },
      telemetry: { commands: { purge: async (options) => ({ telemetry: [...options] }) } },
      workspace: {},
    });
    expect(await merged.rotate?.(new Set())).toEqual({ done: true });
    expect(await merged.purge?.(new Set(["w1"]))).toEqual({
      sandbox: { sandbox: ["w1"] },
      telemetry: { telemetry: ["w1"] },
    });
    expect(Object.keys(merged).toSorted()).toEqual(["purge", "rotate"]);
  });

  test("a program shows, replays and drops dead letters", async () => {
    const run = (...args: string[]) =>
      promisify(execFile)(process.execPath, [join(import.meta.dirname, "dead-letters.ts"), ...args], {
        env: { SANDGATE_ADMIN_SOCKET: socket },
      });
    expect(JSON.parse((await run("list")).stdout)).toMatchObject({
      dead_letters: [{ id: "sandbox-purges.a" }, { id: "sandbox-purges.b" }],
    });
    expect(JSON.parse((await run("show", "sandbox-purges.a")).stdout)).toMatchObject({ event: { eventId: "a" } });
    await run("replay", "sandbox-purges.a");
    await expect(run("replay", "sandbox-purges.b")).rejects.toMatchObject({ code: 1 });
    expect([...letters.keys()]).toEqual(["sandbox-purges.b"]);
    await run("drop", "sandbox-purges.b");
    expect(letters.size).toBe(0);
    await expect(run()).rejects.toMatchObject({ code: 1, stderr: expect.stringContaining("replay <id>") });
    await admin.close();
    await expect(run("list")).rejects.toMatchObject({ code: 1, stderr: expect.stringContaining(socket) });
  });
});
