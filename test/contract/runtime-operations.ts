import { randomUUID } from "node:crypto";
import { createClient } from "@connectrpc/connect";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { ChangeType, FileService } from "@sandgate/proto/helper/v1/file";
import { HelperService } from "@sandgate/proto/helper/v1/helper";
import { OutputStream, ProcessService } from "@sandgate/proto/helper/v1/process";
import { createHelperConnections, type HelperConnections } from "@sandgate/sandbox/helper-connections";
import { fromHelperError } from "@sandgate/sandbox/helper-errors";
import { openOperationMetrics } from "@sandgate/sandbox/operation-metrics";
import type { RuntimeOperations } from "@sandgate/sandbox/runtime-operations";
import { describe, expect } from "vitest";
import { idle, type RuntimeTest } from "./runtime-harness.ts";

// The contract of the operations port, by what the service makes of it.

const { signal } = new AbortController();

type OperationsTest = ReturnType<typeof withConnections>;

export function describeOperations(test: RuntimeTest): void {
  describe("operations", () => {
    const operationsTest = withConnections(test);
    describeReach(operationsTest);
    describeState(operationsTest);
  });
}

function withConnections(test: RuntimeTest) {
  return test.extend("connections", ({ harness, skip }, { onCleanup }) => {
    if (!harness.operations) return skip("sandboxes of this runtime have no helper");
    const connections = openConnections(harness.operations);
    onCleanup(() => connections.close());
    return connections;
  });
}

function openConnections(operations: RuntimeOperations): HelperConnections {
  return createHelperConnections({ operations, metrics: openOperationMetrics(createMetrics()) });
}

/** Runs a program to its end by the sandbox's helper. */
async function run(connections: HelperConnections, sandboxId: string, argv: string[], user = "") {
  const { transport } = await connections.open(sandboxId, signal);
  const output = { stdout: "", stderr: "" };
  for await (const { event } of createClient(ProcessService, transport).run(
    { id: randomUUID(), command: { argv, user } },
    { timeoutMs: 0 },
  )) {
    if (event?.event.case === "output") {
      const { stream, data } = event.event.value;
      output[stream === OutputStream.STDERR ? "stderr" : "stdout"] += Buffer.from(data).toString();
    }
    if (event?.event.case === "exit") return { ...output, exitCode: event.event.value.exitCode };
  }
  throw new Error("the process has no end");
}

function describeReach(operationsTest: OperationsTest): void {
  operationsTest(
    "leaves a sandbox without anything of ours until its first use",
    async ({ connections, harness, run: start }) => {
      const { sandboxId } = await start(idle);
      const before = await harness.exec(sandboxId, ["sh", "-c", "cat /proc/[0-9]*/comm; env; cat /proc/net/unix"]);
      expect(before.output).not.toMatch(/helper|sandgate\.|SANDGATE/i);
      expect((await harness.exec(sandboxId, ["touch", "/.sandgate/x"])).exitCode).not.toBe(0);
      expect(await run(connections, sandboxId, ["echo", "used"])).toEqual({
        stdout: "used\n",
        stderr: "",
        exitCode: 0,
      });
    },
  );

  operationsTest("runs programs in an image that has no shell", async ({ connections, harness, ensure, specOf }) => {
    const spec = specOf(await harness.makeImage(["/bin/sleep", "3600"], ["sleep", "id"]));
    await ensure(spec);
    expect(await run(connections, spec.sandboxId, ["/bin/id", "-u"])).toMatchObject({ stdout: "0\n", exitCode: 0 });
    expect(await run(connections, spec.sandboxId, ["/no/such"])).toMatchObject({ exitCode: 127 });
  });

  operationsTest("starts the helper again when it was killed, with another id", async ({ connections, run: start }) => {
    const { sandboxId } = await start(idle);
    const first = await connections.open(sandboxId, signal);
    await expect(run(connections, sandboxId, ["kill", "-9", String(first.info.pid)])).rejects.toThrow();
    await expect
      .poll(() => run(connections, sandboxId, ["echo", "again"]).catch(String))
      .toMatchObject({
        stdout: "again\n",
      });
    const second = await connections.open(sandboxId, signal);
    expect(second.info.instanceId).not.toBe(first.info.instanceId);
  });

  operationsTest("passes a large file both ways unchanged", async ({ connections, run: start }) => {
    const { sandboxId } = await start(idle, { memoryMb: 256 });
    const { transport } = await connections.open(sandboxId, signal);
    const files = createClient(FileService, transport);
    const size = 64 * 1024 * 1024 + 1;
    const part = (offset: number) => Buffer.alloc(Math.min(65_536, size - offset), offset / 65_536);
    const path = Buffer.from("/tmp/large");
    await files.write(
      (async function* () {
        yield { part: { case: "start" as const, value: { path } } };
        for (let offset = 0; offset < size; offset += 65_536) {
          yield { part: { case: "data" as const, value: part(offset) } };
        }
        yield { part: { case: "commit" as const, value: true } };
      })(),
    );
    let offset = 0;
    let isEqual = true;
    for await (const { part: read } of files.read({ path })) {
      if (read.case !== "data") continue;
      for (const [index, byte] of read.value.entries()) {
        isEqual &&= byte === (Math.floor((offset + index) / 65_536) & 255);
      }
      offset += read.value.length;
    }
    expect({ offset, isEqual }).toEqual({ offset: size, isEqual: true });
  });

  operationsTest("can't reach a sandbox that has ended", async ({ connections, run: start, runtime }) => {
    const { sandboxId } = await start(idle);
    await runtime.stop(sandboxId, 0);
    await expect(connections.open(sandboxId, signal)).rejects.toMatchObject({ reason: "RUNTIME_UNAVAILABLE" });
  });
}

/** What the helper keeps and decides, for whatever connection. */
function describeState(operationsTest: OperationsTest): void {
  operationsTest(
    "makes, reads and refuses files by the rights of a user that is named",
    async ({ connections, run: start }) => {
      const { sandboxId } = await start(idle);
      const { transport } = await connections.open(sandboxId, signal);
      const files = createClient(FileService, transport);
      await run(connections, sandboxId, ["sh", "-c", "mkdir -m 777 /tmp/all && mkdir -m 700 /tmp/root"]);
      const write = (folder: string) => {
        const start = { path: Buffer.from(`/tmp/${folder}/file`), user: "12345:678" };
        return files.write(
          (async function* () {
            yield { part: { case: "start" as const, value: start } };
            yield { part: { case: "data" as const, value: Buffer.from("content") } };
            yield { part: { case: "commit" as const, value: true } };
          })(),
        );
      };
      expect((await write("all")).entry).toMatchObject({ uid: 12_345, gid: 678, mode: 0o644 });
      expect(await run(connections, sandboxId, ["stat", "-c", "%u:%g", "/tmp/all/file"])).toMatchObject({
        stdout: "12345:678\n",
      });
      const refused = await write("root").catch(fromHelperError);
      expect(refused).toMatchObject({ reason: "CONFLICT", errno: "EACCES" });
      const unknown = await files.stat({ path: Buffer.from("/"), user: "no-such-user" }).catch(fromHelperError);
      expect(unknown).toMatchObject({ reason: "VALIDATION_ERROR", violations: [{ field: "user" }] });
      expect(await createClient(HelperService, transport).getUser({ user: "12345:678" })).toMatchObject({
        uid: 12_345,
        home: "/",
      });
    },
  );

  operationsTest(
    "keeps the changes of a watcher until they are asked for, by whatever connection",
    async ({ connections, harness, run: start }) => {
      const { sandboxId } = await start(idle);
      const other = openConnections(harness.operations ?? expect.unreachable());
      try {
        const filesBy = async (by: HelperConnections) =>
          createClient(FileService, (await by.open(sandboxId, signal)).transport);
        const files = await filesBy(connections);
        const { id } = await files.createWatcher({ path: Buffer.from("/tmp"), recursive: true });
        for (let round = 0; round < 20; round++) {
          await run(connections, sandboxId, ["mkdir", "-p", `/tmp/a/b${round}`]);
          const { changes } = await (await filesBy(other)).takeWatcherChanges({ id });
          const created = changes.filter(({ type }) => type === ChangeType.CREATE);
          expect(created.map(({ path }) => Buffer.from(path).toString())).toContain(`/tmp/a/b${round}`);
        }
        await files.removeWatcher({ id });
        expect(await files.takeWatcherChanges({ id }).catch(fromHelperError)).toMatchObject({ reason: "NOT_FOUND" });
      } finally {
        other.close();
      }
    },
  );

  operationsTest(
    "of starts with one key, over several connections, one runs",
    async ({ connections: _, harness, run: start }) => {
      const { sandboxId } = await start(idle);
      // As many replicas of the service.
      const replicas = Array.from({ length: 3 }, () => openConnections(harness.operations ?? expect.unreachable()));
      try {
        const starts = replicas.flatMap((replica) =>
          [1, 2, 3].map(async () => {
            const { transport } = await replica.open(sandboxId, signal);
            const command = { argv: ["sleep", "1000"] };
            const started = { id: randomUUID(), key: Buffer.from("key"), command };
            return createClient(ProcessService, transport).start(started).catch(fromHelperError);
          }),
        );
        const refused = (await Promise.all(starts)).filter((answer) => answer instanceof Error);
        expect(refused).toHaveLength(starts.length - 1);
        for (const error of refused) expect(error).toMatchObject({ reason: "CONFLICT", errno: "EEXIST" });
      } finally {
        for (const replica of replicas) replica.close();
      }
    },
  );
}
