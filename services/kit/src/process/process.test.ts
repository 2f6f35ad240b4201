import { writeFile } from "node:fs/promises";
import { connect } from "node:http2";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { createClient } from "@connectrpc/connect";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { findNatsServer, startNats, type TestNats } from "@sandgate/test-support/nats";
import { findFreePort, type RunningProcess, startProcess } from "@sandgate/test-support/process";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { createLogger } from "../base/logging.ts";
import { createRemoteTransport } from "../rpc/clients.ts";
import { asFacade, type UserCaller } from "../rpc/context.ts";
import { makeKeys, openTokenSigner } from "../rpc/internal-keys.ts";
import { askSocket } from "./admin.socket.ts";

const program = join(import.meta.dirname, "process.fixture.child.ts");
const natsEnd = join(import.meta.dirname, "../../../../test/support/nats-end.ts");
const logger = createLogger({ service: "test", level: "silent" });
const user: UserCaller = { id: "u", credential: "session", credentialId: "s", operator: false };
const { path: folder, remove: removeFolder } = await createTempFolder();
let running: RunningProcess[] = [];

beforeAll(async () => {
  await makeKeys(folder);
  await writeFile(join(folder, "sqlite"), "sqlite:data\n");
  await writeFile(join(folder, "local"), "local:\n");
});
afterEach(async () => {
  await Promise.all(running.map((each) => each.kill()));
  running = [];
});
afterAll(removeFolder);

async function start(settings: Record<string, string>) {
  const [port, adminPort] = [await findFreePort(), await findFreePort()];
  const socket = join(folder, `${adminPort}.sock`);
  const env = {
    PATH: process.env.PATH,
    SANDGATE_HOST: "127.0.0.1",
    SANDGATE_PORT: String(port),
    SANDGATE_ADMIN_PORT: String(adminPort),
    SANDGATE_ADMIN_SOCKET: socket,
    SANDGATE_DATABASE: "mongodb://127.0.0.1:1",
    SANDGATE_KEYS_FILE: join(folder, "keyring.json"),
    SANDGATE_INTERNAL_KEY_FILE: join(folder, "workspace.jwk.json"),
    SANDGATE_INTERNAL_JWKS_FILE: join(folder, "jwks.json"),
    SANDGATE_IDENTITY_URL: "http://127.0.0.1:1",
    SANDGATE_IMAGE_REGISTRY_URL: "http://127.0.0.1:1",
    SANDGATE_SANDBOX_URL: "http://127.0.0.1:1",
    SANDGATE_TELEMETRY_URL: "http://127.0.0.1:1",
    ...settings,
  };
  const started = startProcess(process.execPath, ["--import", natsEnd, program], { env });
  running.push(started);
  return {
    ...started,
    url: `http://127.0.0.1:${port}`,
    adminUrl: `http://127.0.0.1:${adminPort}`,
    socket,
    /** Waits until /readyz answers so, and returns its body. */
    async untilReadiness(status: number): Promise<unknown> {
      for (;;) {
        const answer = await fetch(`http://127.0.0.1:${adminPort}/readyz`).catch(() => undefined);
        if (answer?.status === status) return answer.json();
        await delay(20);
      }
    },
  };
}

/** What was printed, of which each line must be JSON. */
function linesOf(output: string): unknown[] {
  return output
    .trim()
    .split("\n")
    .map((line): unknown => JSON.parse(line));
}

async function openClient(url: string) {
  const signer = await openTokenSigner({ caller: "facade", file: join(folder, "facade.jwk.json"), logger });
  return createClient(WorkspaceService, createRemoteTransport({ url, signer, audience: "workspace" }));
}

describe("a process that can't be one of many says why in one line of JSON and ends", () => {
  const nats = { SANDGATE_EVENTS: "nats://127.0.0.1:1" };
  test.each<[string, Record<string, string>, string]>([
    ["SQLite", { ...nats, SANDGATE_DATABASE: "sqlite:data" }, "SANDGATE_DATABASE must be mongodb://"],
    [
      "SQLite from a file",
      { ...nats, SANDGATE_DATABASE: "", SANDGATE_DATABASE_FILE: "sqlite" },
      "SANDGATE_DATABASE must be",
    ],
    ["the local bus", { SANDGATE_EVENTS: "local:" }, "SANDGATE_EVENTS must be nats://"],
    ["the local bus from a file", { SANDGATE_EVENTS_FILE: "local" }, "SANDGATE_EVENTS must be nats://"],
    [
      "an address by another way",
      { ...nats, SANDGATE_SANDBOX_URL: "http://a:1,grpc://b:2" },
      "SANDGATE_SANDBOX_URL must be http://",
    ],
    ["a certificate without its key", { ...nats, SANDGATE_TLS_CERT_FILE: "cert.pem" }, "need each other"],
    ["certificates that aren't there", { ...nats, SANDGATE_TLS_CA_FILE: "ca.pem" }, "ca.pem can't be used"],
    ["no address", { ...nats, SANDGATE_IDENTITY_URL: "" }, "SANDGATE_IDENTITY_URL is missing"],
    ["another's key", { ...nats, SANDGATE_INTERNAL_KEY_FILE: "facade.jwk.json" }, "not a key of workspace"],
  ])("%s", async (_, settings, line) => {
    const given = Object.entries(settings).map(([name, value]) => [
      name,
      name.endsWith("_FILE") ? join(folder, value) : value,
    ]);
    const { exited, output } = await start(Object.fromEntries(given));
    expect(await exited).toBe(1);
    const [logged, ...more] = linesOf(output());
    expect(logged).toMatchObject({ level: "fatal", service: "workspace", msg: expect.stringContaining(line) });
    expect(more).toEqual([]);
  });
});

describe.runIf(await requireServer("nats", findNatsServer))("with its bus", () => {
  let nats: TestNats;
  beforeAll(async () => {
    nats = await startNats();
  });
  afterAll(() => nats.stop());

  test("waits for it, shows what it depends on, and is not ready before", async () => {
    await nats.kill();
    const service = await start({ SANDGATE_EVENTS: nats.url });
    expect(await service.untilReadiness(503)).toMatchObject({ dependencies: { events: "not connected yet" } });
    while (!service.output().includes("waiting for NATS")) await delay(20);
    await nats.start();
    const dependencies = { events: "ok", database: "ok, sandgate_workspace" };
    expect(await service.untilReadiness(200)).toMatchObject({ ready: true, dependencies });
    const deadLetters = await askSocket(service.socket, "GET", "/dead-letters");
    expect(JSON.parse(deadLetters.body)).toEqual({ dead_letters: [] });
    const metrics = await (await fetch(`${service.adminUrl}/metrics`)).text();
    expect(metrics).toContain('sandgate_dependency_up{dependency="events"} 1');
    expect(await service.stop()).toBe(0);
  });

  test("ends in order, with exit code 1, when its connection to NATS has ended for good", async () => {
    const service = await start({ SANDGATE_EVENTS: nats.url });
    await service.untilReadiness(200);
    service.child.kill("SIGUSR2");
    expect(await service.exited).toBe(1);
    const lines = linesOf(service.output());
    // In whatever order: a line that is written at once overtakes one that waits for the pipe.
    for (const msg of ["the connection to NATS ended for good", "closed", "stopped"]) {
      expect(lines).toContainEqual(expect.objectContaining({ msg }));
    }
  });

  test("waits for its database, and can be stopped meanwhile", async () => {
    const service = await start({ SANDGATE_EVENTS: nats.url, TEST_NEEDS_DATABASE: "true" });
    while (!service.output().includes("waiting for the database")) await delay(20);
    expect(await service.untilReadiness(503)).toMatchObject({ ready: false, dependencies: { events: "ok" } });
    expect(await service.stop()).toBe(0);
  });

  test("a call that is running when the process is stopped is answered, and every line it logs is JSON with the request's id", async () => {
    const service = await start({ SANDGATE_EVENTS: nats.url, SANDGATE_LOG_LEVEL: "debug" });
    await service.untilReadiness(200);
    const client = await openClient(service.url);
    const creating = client.createWorkspace({ name: "w" }, asFacade({ requestId: "the-request", user }));
    while (!service.output().includes("creating")) await delay(5);
    const stopped = service.stop();
    expect((await creating).workspace?.name).toBe("w");
    expect(await stopped).toBe(0);
    const lines = linesOf(service.output());
    expect(lines).toContainEqual(expect.objectContaining({ service: "workspace", request_id: "the-request" }));
    expect(lines).toContainEqual(expect.objectContaining({ msg: "stopped" }));
  });

  test("a task that can't be stopped costs no running call its answer, and the service is closed", async () => {
    const service = await start({ SANDGATE_EVENTS: nats.url, TEST_FAILS_TO_DRAIN: "true" });
    await service.untilReadiness(200);
    const client = await openClient(service.url);
    const creating = client.createWorkspace({ name: "w" }, asFacade({ requestId: "r", user }));
    while (!service.output().includes("creating")) await delay(5);
    const stopped = service.stop();
    expect((await creating).workspace?.name).toBe("w");
    expect(await stopped).toBe(1);
    const lines = linesOf(service.output());
    expect(lines).toContainEqual(expect.objectContaining({ msg: "closed" }));
    expect(lines).toContainEqual(
      expect.objectContaining({
        msg: "did not stop cleanly",
        err: expect.objectContaining({ message: "a task can't be stopped" }),
      }),
    );
  });

  test("what a failing handler, the library that serves it and Node say are lines of JSON too", async () => {
    const service = await start({ SANDGATE_EVENTS: nats.url });
    await service.untilReadiness(200);
    const client = await openClient(service.url);
    await expect(client.createWorkspace({ name: "fail" }, asFacade({ requestId: "r", user }))).rejects.toThrow();
    const session = connect(service.url);
    session.on("error", () => {});
    session.request({
      ":method": "POST",
      ":path": "/sandgate.workspace.v1.WorkspaceService/CreateWorkspace",
      ":authority": "[",
    });
    while (!service.output().includes("handler for rpc CreateWorkspace")) await delay(20);
    session.destroy();
    expect(await service.stop()).toBe(0);
    const lines = linesOf(service.output());
    const said = (level: string, message: string) =>
      expect.objectContaining({ level, err: expect.objectContaining({ message }) });
    expect(lines).toContainEqual(said("error", "a fault of the handler's"));
    expect(lines).toContainEqual(said("error", "Invalid URL"));
    expect(lines).toContainEqual(said("warn", "a warning of the handler's"));
  });
});
