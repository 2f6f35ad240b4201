import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { promisify } from "node:util";
import { createLogger } from "@sandgate/kit/base/logging";
import type { Connector } from "@sandgate/sandbox/docker-connector";
import { createDockerOperations } from "@sandgate/sandbox/operations.docker";
import { createDockerRuntime } from "@sandgate/sandbox/runtime.docker";
import { buildImage, openTestEngine, probeEngine, engineAddress as url } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, describe, expect, test } from "vitest";
import { removeHostObjects } from "../platform/host-objects.ts";

const isAvailable = await requireServer("docker", probeEngine);
const execute = promisify(execFile);
const { signal } = new AbortController();
/** What HTTP/2 begins with; the daemon answers with its settings. */
const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", "latin1");

async function answers(stream: Duplex): Promise<boolean> {
  stream.write(preface);
  return new Promise((resolve) => {
    stream.once("data", () => resolve(true)).once("close", () => resolve(false));
    // It may have been paused.
    stream.resume();
  });
}

describe.runIf(isAvailable)("operations: docker", { timeout: 60_000 }, () => {
  const engine = openTestEngine();
  const installationId = `test-${randomUUID()}`;
  const logger = createLogger({ service: "operations-test", level: "silent" });
  const { lifecycle, operations, close } = createDockerRuntime({ url, installationId, isolation: false, logger });
  const endings: (() => Promise<unknown>)[] = [];

  afterAll(async () => {
    for (const end of endings.reverse()) await end();
    await close();
    await removeHostObjects(installationId);
  });

  async function start(changes: readonly string[] = [], by = lifecycle): Promise<string> {
    const image = await buildImage(engine, { command: ["sleep", "3600"], changes });
    endings.push(() => image.remove());
    const sandboxId = randomUUID();
    endings.push(() => by.remove(sandboxId));
    const limits = { memoryMb: 64, cpus: 0.5, pids: 64 };
    await by.ensure({ sandboxId, workspaceId: randomUUID(), reference: image.id, ...limits });
    return sandboxId;
  }

  test.runIf(process.geteuid?.() === 0).each(["0", "12345:678"])(
    "root on the engine's machine connects past the engine to the daemon of the user %s",
    async (user) => {
      const sandboxId = await start([`USER ${user}`]);
      // The first starts it.
      for (let round = 0; round < 3; round++) {
        const socket = await operations.connectHelper(sandboxId, signal);
        expect(socket).toBeInstanceOf(Socket);
        expect(await answers(socket)).toBe(true);
        socket.destroy();
      }
    },
  );

  test("where a container can't be entered the engine carries the connections, and that is tried once", async () => {
    const sandboxId = await start();
    let tries = 0;
    const connector: Connector = {
      connect: () => {
        tries += 1;
        return Promise.reject(new Error("barred: not permitted"));
      },
      close: () => Promise.resolve(),
    };
    const hindered = createDockerOperations(engine, { connector, logger });
    for (let round = 0; round < 2; round++) {
      const stream = await hindered.connectHelper(sandboxId, signal);
      expect(stream).not.toBeInstanceOf(Socket);
      expect(await answers(stream)).toBe(true);
      stream.destroy();
    }
    expect(tries).toBe(1);
  });

  test.runIf(process.geteuid?.() === 0)("a connector that is killed is started again", async () => {
    const sandboxId = await start();
    const socket = await operations.connectHelper(sandboxId, signal);
    const closed = once(socket, "close");
    await execute("pkill", ["-KILL", "-P", String(process.pid), "-f", "connector"]);
    socket.resume();
    await closed;
    const again = await operations.connectHelper(sandboxId, signal);
    expect(again).toBeInstanceOf(Socket);
    expect(await answers(again)).toBe(true);
    again.destroy();
  });

  test("sandboxes have the helper although its volume was removed since", async ({ onTestFinished }) => {
    const own = `test-${randomUUID()}`;
    onTestFinished(() => removeHostObjects(own));
    const runtime = createDockerRuntime({ url, installationId: own, isolation: false, logger });
    onTestFinished(() => runtime.close());
    const first = await start([], runtime.lifecycle);
    const { Mounts: mounts } = await engine.getContainer(`sandgate-${first}`).inspect();
    await runtime.lifecycle.remove(first);
    for (const { Name: name = "" } of mounts) await engine.getVolume(name).remove();
    const stream = await runtime.operations.connectHelper(await start([], runtime.lifecycle), signal);
    expect(await answers(stream)).toBe(true);
    stream.destroy();
  });

  test("a container that keeps many connections open gets more by the engine", async () => {
    const sandboxId = await start();
    const streams: Duplex[] = [];
    for (let round = 0; round < 10; round++) streams.push(await operations.connectHelper(sandboxId, signal));
    const last = streams.at(-1) ?? expect.unreachable();
    expect(last).not.toBeInstanceOf(Socket);
    expect(await answers(last)).toBe(true);
    for (const stream of streams) stream.destroy();
    await expect
      .poll(async () => {
        const again = await operations.connectHelper(sandboxId, signal);
        again.destroy();
        return again instanceof Socket;
      })
      .toBe(process.geteuid?.() === 0);
  });
});
