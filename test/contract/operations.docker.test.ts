import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { createLogger } from "@sandgate/kit/base/logging";
import { minuteMs } from "@sandgate/kit/base/time";
import { type Connector, createConnector } from "@sandgate/sandbox/docker-connector";
import { createDockerOperations } from "@sandgate/sandbox/operations.docker";
import { createDockerRuntime } from "@sandgate/sandbox/runtime.docker";
import {
  buildFolderImage,
  buildImage,
  openTestEngine,
  probeEngine,
  sandboxIdentity,
  type TestImage,
  engineAddress as url,
} from "@sandgate/test-support/images";
import { addPython } from "@sandgate/test-support/program-images";
import { requireServer } from "@sandgate/test-support/require";
import { test } from "@sandgate/test-support/test";
import { afterAll, describe, expect, vi } from "vitest";
import { removeHostObjects } from "../platform/host-objects.ts";

const isAvailable = await requireServer("docker", probeEngine);
const execute = promisify(execFile);
const { signal } = new AbortController();
/** What HTTP/2 begins with; the daemon answers with its settings. */
const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", "latin1");

/** Takes the place of the helper's daemon, and says on each connection that it is given what the platform's parts say. */
const impostor = `
import itertools, os, socket
listener = socket.socket(socket.AF_UNIX)
listener.bind("\\0sandgate-helper-0")
listener.listen()
held = []
words = itertools.cycle([b"barred: not permitted\\n", b"nonsense\\n", b"entered\\nbarred: not permitted\\n", b"b" * 4096, b"ok\\n"])
while True:
    dial, _ = listener.accept()
    descriptors = socket.recv_fds(dial, 1, 2)[1]
    if descriptors:
        os.write(descriptors[1], next(words))
        held.append(dial)
`;

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
    return run(await buildImage(engine, { command: ["sleep", "3600"], changes }), by);
  }

  async function run(image: TestImage, by = lifecycle): Promise<string> {
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

  test.runIf(process.geteuid?.() === 0)(
    "another connection goes past the engine once a helper is connected",
    async () => {
      const sandboxId = await start();
      expect(await operations.connectDaemon?.(sandboxId, signal)).toBeUndefined();
      const calls = await operations.connectHelper(sandboxId, signal);
      const another = await operations.connectDaemon?.(sandboxId, signal);
      expect(another && (await answers(another))).toBe(true);
      another?.destroy();
      calls.destroy();
      await lifecycle.remove(sandboxId);
      await expect(operations.connectDaemon?.(sandboxId, signal)).rejects.toMatchObject({
        reason: "RUNTIME_UNAVAILABLE",
      });
    },
  );

  test("where containers can't be entered the engine carries the connections, and that is tried again after a minute", async ({
    onTestFinished,
  }) => {
    const sandboxId = await start();
    vi.useFakeTimers({ toFake: ["performance"] });
    onTestFinished(() => void vi.useRealTimers());
    const told = vi.spyOn(logger, "info");
    onTestFinished(() => told.mockRestore());
    const connect = vi.fn<Connector["connect"]>(() => Promise.reject(new Error("barred: not permitted")));
    const connector = { connect, close: () => Promise.resolve() };
    const hindered = createDockerOperations(engine, { connector, logger });
    const connectTwice = async () => {
      for (let round = 0; round < 2; round++) {
        const stream = await hindered.connectHelper(sandboxId, signal);
        if (!(stream instanceof Socket)) expect(await answers(stream)).toBe(true);
        stream.destroy();
      }
    };
    for (let tries = 1; tries <= 3; tries++) {
      await connectTwice();
      expect(connect).toHaveBeenCalledTimes(tries);
      vi.advanceTimersByTime(minuteMs);
    }
    expect(told).toHaveBeenCalledOnce();
    connect.mockImplementation(() => Promise.resolve(new Socket()));
    await connectTwice();
    expect(connect).toHaveBeenCalledTimes(5);
    expect(told).toHaveBeenCalledTimes(2);
  });

  test.runIf(process.geteuid?.() === 0)(
    "a program in the daemon's place has no say about others, and once a container was entered no other container has",
    { timeout: 180_000 },
    async ({ folder, onTestFinished }) => {
      await addPython(folder);
      const command = ["python3", "-c", impostor];
      const hostile = await run(await buildFolderImage(engine, folder, { command }));
      const honest = await start();
      const { State: state } = await engine.getContainer(`sandgate-${hostile}`).inspect();
      await expect.poll(() => readFile(`/proc/${state.Pid}/net/unix`, "utf8")).toContain("@sandgate-helper-0");
      const { Id: containerId } = await engine.getContainer(`sandgate-${honest}`).inspect();
      const connector = createConnector();
      onTestFinished(() => connector.close());
      const notItsProcess = { containerId, pid: process.pid, uid: 0 };
      await expect(connector.connect(notItsProcess, signal)).rejects.toThrow("barred");

      const shared = createDockerOperations(engine, { connector, logger });
      for (let round = 0; round < 5; round++) (await shared.connectHelper(hostile, signal)).destroy();
      const socket = await shared.connectHelper(honest, signal);
      expect(socket).toBeInstanceOf(Socket);
      expect(await answers(socket)).toBe(true);
      socket.destroy();
      expect(await connector.connect(notItsProcess, signal)).toBeUndefined();
    },
  );

  test("a sandbox that lacks the helper is told so", async () => {
    const image = await buildImage(engine, { command: ["sleep", "3600"] });
    endings.push(() => image.remove());
    const sandboxId = randomUUID();
    const identity = sandboxIdentity({ sandboxId, workspaceId: randomUUID(), installationId });
    await (await engine.createContainer({ Image: image.id, ...identity })).start();
    await expect(text(await operations.connectHelper(sandboxId, signal))).rejects.toMatchObject({
      reason: "CONFLICT",
      errno: "ENOSYS",
      cause: { message: expect.stringMatching(/^the helper ended with 12[67]: OCI runtime exec failed/) },
    });
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
    // It gets 32 past the engine.
    for (let round = 0; round < 34; round++) streams.push(await operations.connectHelper(sandboxId, signal));
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
