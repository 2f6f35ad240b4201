import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Client } from "@connectrpc/connect";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import type { EventBus } from "@sandgate/kit/events/bus";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { asFacade, asService } from "@sandgate/kit/rpc/context";
import { LogStream, SourceKind, type TelemetryService } from "@sandgate/proto/telemetry/v1/telemetry";
import { removeHostObjects } from "@sandgate/test/platform/host-objects";
import { openFaultProxy } from "@sandgate/test-support/fault-proxy";
import {
  buildImage,
  engineAddress,
  engineSocket,
  openTestEngine,
  probeEngine,
  runSandboxContainer,
  sandboxIdentity,
  type TestImage,
} from "@sandgate/test-support/images";
import { findFreePort } from "@sandgate/test-support/process";
import { requireServer } from "@sandgate/test-support/require";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect } from "vitest";
import { openTestService, type TestService } from "./service.fixture.ts";

const logger = createLogger({ service: "telemetry", level: process.env.SANDGATE_LOG_LEVEL ?? "silent" });
/** Each look reads all of a sandbox's lines. */
const waiting = { intervalMs: 100 };

let folder: string;
let installationId: string;
let workspaceId: string;
/** The workspaces of sandboxes whose records name another than `workspaceId`. */
const owners = new Map<string, string>();
let bus: EventBus;
let service: TestService;
let telemetry: Client<typeof TelemetryService>;
let ingest: Client<typeof TelemetryService>;
let asSandbox: Client<typeof TelemetryService>;

/** Opens the service on the test's folder, again after a close. */
async function open(runtime: string, log = logger): Promise<void> {
  bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics: createMetrics() });
  service = await openTestService({
    runtime,
    installationId,
    database: { kind: "sqlite", file: join(folder, "telemetry.sqlite") },
    bus,
    keysFile: join(folder, "keys.json"),
    logger: log,
    workspaceOf: (sandboxId) => owners.get(sandboxId) ?? workspaceId,
  });
  telemetry = service.as.facade;
  ingest = service.as.telemetry;
  asSandbox = service.as.sandbox;
}

async function close(): Promise<void> {
  await service.close();
  await bus.close();
}

test.beforeEach(async ({ folder: own }) => {
  folder = own;
  installationId = newId();
  workspaceId = newId();
});

afterEach(async () => {
  await close();
});

function member(o: { workspace?: string; signal?: AbortSignal } = {}) {
  const workspace = o.workspace ?? workspaceId;
  return asFacade({
    requestId: newId(),
    user: {
      id: "u1",
      credential: "session",
      credentialId: "s1",
      operator: false,
      workspaceId: workspace,
      role: "member",
    },
    signal: o.signal,
    timeoutMs: 0,
  });
}

const all = { includeLogs: true, includeMetrics: true, limit: 10_000 };

async function readLines(sandboxId: string, query: { stream?: LogStream; limit?: number } = {}): Promise<string[]> {
  const { logs } = await telemetry.queryTelemetry({ ...all, sandboxId, ...query }, member());
  return logs.map((entry) => entry.log);
}

describe("telemetry", () => {
  beforeEach(() => open("docker:///nowhere/docker.sock"));

  const seconds = BigInt(Math.floor(Date.now() / 1000));
  /** Each line is a nanosecond after the one before. */
  let nanos = 0;
  beforeEach(() => {
    nanos = 0;
  });

  function sourceOf(sandboxId: string, kind: SourceKind = SourceKind.LOGS) {
    return { sandboxId, containerId: "c1", kind };
  }
  async function ingestLines(sandboxId: string, from: string, to: string, lines: readonly string[], final = false) {
    const logs = lines.map((log, i) => ({
      timestamp: { seconds, nanos: nanos++ },
      stream: i % 2 ? LogStream.STDERR : LogStream.STDOUT,
      log,
    }));
    const request = { source: sourceOf(sandboxId), fromCursor: from, toCursor: to, logs, final };
    return ingest.ingestTelemetry(request, asService());
  }

  test("returns what was ingested, once, to the nanosecond, by stream and limit", async () => {
    const sandboxId = newId();
    const { accepted } = await ingestLines(sandboxId, "", "a", ["1", "2", "3", "4"]);
    expect(accepted).toBe(true);
    expect(await ingestLines(sandboxId, "", "a", ["1", "2", "3", "4"])).toMatchObject({
      accepted: false,
      storedCursor: "a",
    });
    expect(await readLines(sandboxId)).toEqual(["1", "2", "3", "4"]);
    expect(await readLines(sandboxId, { limit: 2 })).toEqual(["3", "4"]);
    expect(await readLines(sandboxId, { stream: LogStream.STDERR })).toEqual(["2", "4"]);
    const { logs } = await telemetry.queryTelemetry({ sandboxId, includeLogs: true }, member());
    expect(logs.map((entry) => entry.timestamp?.nanos)).toEqual([0, 1, 2, 3]);
    expect(await readLines(newId())).toEqual([]);
  });

  test("a window includes its start and excludes its end", async () => {
    const sandboxId = newId();
    await ingestLines(sandboxId, "", "a", ["1", "2", "3", "4"]);
    const { logs: all } = await telemetry.queryTelemetry({ sandboxId, includeLogs: true }, member());
    const [, since, , end] = all.map((entry) => entry.timestamp);
    if (!since || !end) throw new Error("a line has no time");
    const { logs, metrics } = await telemetry.queryTelemetry(
      { sandboxId, includeLogs: true, since, until: end },
      member(),
    );
    expect(logs.map((entry) => entry.log)).toEqual(["2", "3"]);
    expect(metrics).toEqual([]);
    await expect(
      telemetry.queryTelemetry({ sandboxId, includeLogs: true, since: end, until: end }, member()),
    ).rejects.toMatchObject({ reason: "VALIDATION_ERROR", violations: [{ field: "query.since" }] });
  });

  test("shows a sandbox to its workspace alone", async () => {
    const sandboxId = newId();
    await ingestLines(sandboxId, "", "a", ["secret"]);
    const other = member({ workspace: newId() });
    await expect(telemetry.queryTelemetry({ ...all, sandboxId }, other)).rejects.toMatchObject({
      reason: "SANDBOX_NOT_FOUND",
    });
    const tail = telemetry.tailTelemetry({ ...all, sandboxId, position: "0.0" }, other);
    await expect(tail[Symbol.asyncIterator]().next()).rejects.toMatchObject({ reason: "SANDBOX_NOT_FOUND" });
  });

  test("a query whose caller has gone is ended, and that is not an error", async () => {
    const sandboxId = newId();
    for (let i = 0; i < 20; i += 1) {
      await ingestLines(sandboxId, i ? `${i - 1}` : "", `${i}`, Array(20).fill("x".repeat(50_000)));
    }
    const reasons = async () => {
      const failures = await service.metrics.getSingleMetric("sandgate_rpc_failures_total")?.get();
      return failures?.values.map(({ labels }) => labels.reason) ?? [];
    };
    await until(async () => {
      const caller = new AbortController();
      const query = telemetry.queryTelemetry({ ...all, sandboxId }, member({ signal: caller.signal }));
      await delay(Math.random() * 20);
      caller.abort();
      await query.catch(() => {});
      expect(await reasons()).not.toEqual([]);
    });
    expect(await reasons()).toEqual(["ENDED"]);
  });

  test("a tail begins now, resumes after a position, and ends with its sources", async () => {
    const sandboxId = newId();
    await ingestLines(sandboxId, "", "a", ["before"]);
    const seen: string[] = [];
    let position = "";
    const follow = async () => {
      const stop = new AbortController();
      try {
        const request = { sandboxId, includeLogs: true, position };
        for await (const row of telemetry.tailTelemetry(request, member({ signal: stop.signal }))) {
          position = row.position;
          if (row.row.case === "log") seen.push(row.row.value.log);
          if (seen.length === 3) return;
        }
        seen.push("end");
      } finally {
        stop.abort();
      }
    };
    const first = follow();
    // A tail that was not there yet when the lines came would wait for the next ones.
    let at = "a";
    await until(async () => {
      const to = newId();
      await ingestLines(sandboxId, at, to, ["1", "2"]);
      at = to;
      expect(seen).not.toEqual([]);
    });
    await ingestLines(sandboxId, at, "c", ["3", "4"]);
    await first;
    expect(seen.slice(0, 3)).toEqual(["1", "2", expect.any(String)]);
    const numbers = position;
    await ingestLines(sandboxId, "c", "d", ["5"], true);
    await follow();
    expect(seen.at(-1)).toBe("end");
    position = numbers;
    const stored = await readLines(sandboxId);
    const resumed = seen.slice(3, -1);
    expect(stored.slice(-resumed.length)).toEqual(resumed);
    expect(resumed.at(-1)).toBe("5");
  });

  test("a tail says at once where it begins, from where it can be resumed", async () => {
    const sandboxId = newId();
    await ingestLines(sandboxId, "", "a", ["before"]);
    const stop = new AbortController();
    const request = { sandboxId, includeLogs: true };
    const tail = telemetry.tailTelemetry(request, member({ signal: stop.signal }))[Symbol.asyncIterator]();
    const { value: begin } = await tail.next();
    expect(begin).toMatchObject({ position: "1.0", row: { case: undefined } });
    stop.abort();
    await ingestLines(sandboxId, "a", "b", ["after"], true);
    const lines: unknown[] = [];
    const resumed = telemetry.tailTelemetry({ ...request, position: "1.0" }, member());
    for await (const { row } of resumed) lines.push(row.case === "log" ? row.value.log : row.case);
    expect(lines).toEqual(["after"]);
  });

  test("a tail's malformed position is refused", async () => {
    const tail = telemetry.tailTelemetry({ ...all, sandboxId: newId(), position: "yesterday" }, member());
    await expect(tail[Symbol.asyncIterator]().next()).rejects.toMatchObject({
      reason: "VALIDATION_ERROR",
      violations: [{ field: "header.last-event-id" }],
    });
  });

  test("draining ends a tail", async () => {
    const sandboxId = newId();
    await ingestLines(sandboxId, "", "a", ["1"]);
    const rows = telemetry.tailTelemetry({ ...all, sandboxId, position: "0.0" }, member())[Symbol.asyncIterator]();
    expect(await rows.next()).toMatchObject({ done: false });
    const next = rows.next();
    await service.service.drain();
    expect(await next).toMatchObject({ done: true });
  });

  test("a deleted workspace is purged, and accepts nothing afterwards", async () => {
    const sandboxId = newId();
    await ingestLines(sandboxId, "", "a", ["1"]);
    let purged = 0;
    const consumption = await bus.consume({
      consumer: "test",
      subjects: ["sandgate.telemetry.workspace.workspace_purged.v1"],
      async handle() {
        purged += 1;
      },
    });
    await service.deleteWorkspace(workspaceId);
    await until(() => expect(purged).toBeGreaterThan(0));
    await consumption.stop();
    expect(await readLines(sandboxId)).toEqual([]);
    await expect(ingestLines(newId(), "", "a", ["late"])).rejects.toMatchObject({ reason: "WORKSPACE_NOT_FOUND" });
  });

  test("rows of another kind than their source's are refused", async () => {
    const source = sourceOf(newId(), SourceKind.METRICS);
    const logs = [{ timestamp: { seconds: 1n, nanos: 0 }, stream: LogStream.STDOUT, log: "x" }];
    await expect(ingest.ingestTelemetry({ source, toCursor: "a", logs }, asService())).rejects.toMatchObject({
      reason: "VALIDATION_ERROR",
    });
  });
});

const hasEngine = await requireServer("docker", probeEngine);

describe.runIf(hasEngine)("telemetry of real containers", () => {
  const engine = openTestEngine();
  let image: TestImage;

  beforeAll(async () => {
    image = await buildImage(engine, { command: ["sleep", "3600"] });
  });
  afterAll(() => image.remove());
  beforeEach(() => open(engineAddress));
  afterEach(() => removeHostObjects(installationId));

  async function run(script: string, o: { sandboxId?: string; logFileKb?: string; installation?: string } = {}) {
    const sandboxId = o.sandboxId ?? newId();
    const container = await runSandboxContainer(engine, {
      image,
      script,
      sandboxId,
      workspaceId,
      installationId: o.installation ?? installationId,
      logConfig: { Type: "json-file", Config: { "max-size": `${o.logFileKb ?? 65_536}k`, "max-file": "100" } },
    });
    return { sandboxId, container };
  }
  async function awaitDrained(sandboxId: string): Promise<boolean> {
    const o = asService({ timeoutMs: 65_000 });
    return (await asSandbox.awaitDrained({ sandboxId, timeoutSeconds: 60 }, o)).drained;
  }
  /** All lines there are, past the limit of one query. */
  async function readAll(sandboxId: string): Promise<string[]> {
    const lines: string[] = [];
    const tail = telemetry.tailTelemetry({ sandboxId, includeLogs: true, position: "0.0" }, member());
    for await (const { row } of tail) if (row.case === "log") lines.push(row.value.log);
    return lines;
  }

  test("both streams of a container that ends at once are stored when it is drained", async () => {
    const { sandboxId } = await run("echo out; sleep 0.05; echo err >&2; sleep 0.05; printf 'no line end'; exit 3");
    expect(await awaitDrained(sandboxId)).toBe(true);
    const { logs } = await telemetry.queryTelemetry({ ...all, sandboxId }, member());
    expect(logs.map((entry) => [entry.stream, entry.log])).toEqual([
      [LogStream.STDOUT, "out"],
      [LogStream.STDERR, "err"],
      [LogStream.STDOUT, "no line end"],
    ]);
  });

  test("lines belong to the workspace of the sandbox's record, whichever its container's label names", async () => {
    const [sandboxId, owner] = [newId(), newId()];
    owners.set(sandboxId, owner);
    await run("echo here", { sandboxId });
    expect(await awaitDrained(sandboxId)).toBe(true);
    const { logs } = await telemetry.queryTelemetry({ ...all, sandboxId }, member({ workspace: owner }));
    expect(logs.map(({ log }) => log)).toEqual(["here"]);
    await expect(readLines(sandboxId)).rejects.toMatchObject({ reason: "SANDBOX_NOT_FOUND" });
  });

  test("lines of a running container arrive by themselves", async () => {
    const { sandboxId } = await run("echo here; sleep 3600");
    await until(async () => expect(await readLines(sandboxId)).toContain("here"), waiting);
  });

  test("long, invalid and empty lines", async () => {
    const { sandboxId } = await run(
      `head -c 40000 /dev/zero | tr '\\0' a; echo; head -c 100000 /dev/zero | tr '\\0' b; echo; printf 'x\\377y\\n'; echo; echo last`,
    );
    expect(await awaitDrained(sandboxId)).toBe(true);
    const [long, cut, ...rest] = await readLines(sandboxId);
    expect(long).toBe("a".repeat(40_000));
    expect(cut).toMatch(/^b+ …\[cut\]$/);
    expect(Buffer.byteLength(cut ?? "")).toBe(65_536);
    expect(rest).toEqual(["x\uFFFDy", "", "last"]);
  });

  test("a fast writer's lines arrive once and in order, although its log rotates and the service restarts meanwhile", async () => {
    const count = 60_000;
    const { sandboxId } = await run(
      `i=0; while [ $i -lt ${count} ]; do echo "line $i"; i=$((i+1)); [ $((i % 400)) = 0 ] && usleep 10000; done; true`,
      { logFileKb: "64" },
    );
    for (const enough of [1_000, 10_000, 30_000]) {
      await until(async () => {
        const [newest = ""] = await readLines(sandboxId, { limit: 1 });
        expect(Number(newest.slice(5))).toBeGreaterThan(enough);
      }, waiting);
      await close();
      await open(engineAddress);
    }
    expect(await awaitDrained(sandboxId)).toBe(true);
    const lines = await readAll(sandboxId);
    expect(lines.findIndex((line, i) => line !== `line ${i}`)).toBe(-1);
    expect(lines).toHaveLength(count);
  });

  test("what a container wrote while the service was down is read afterwards", async () => {
    await close();
    const { sandboxId, container } = await run("for i in 1 2 3; do echo $i; done");
    await container.wait();
    await open(engineAddress);
    await until(async () => expect(await readLines(sandboxId)).toHaveLength(3), waiting);
    expect(await awaitDrained(sandboxId)).toBe(true);
    expect(await readLines(sandboxId)).toEqual(["1", "2", "3"]);
  });

  test("samples begin with the container, and its CPU time grows until its end", async () => {
    const { sandboxId, container } = await run("trap 'exit 0' TERM; while :; do :; done");
    const samples = async () => (await telemetry.queryTelemetry({ ...all, sandboxId }, member())).metrics;
    await until(async () => expect((await samples()).length).toBeGreaterThanOrEqual(2), waiting);
    await container.stop();
    expect(await awaitDrained(sandboxId)).toBe(true);
    const [first, second, ...more] = await samples();
    if (!first || !second) throw new Error("two samples were there before");
    expect(second.cpuUsage).toBeGreaterThan(first.cpuUsage);
    expect(more.every((sample) => sample.cpuUsage > first.cpuUsage)).toBe(true);
    expect(first.memoryUsage).toBeGreaterThan(0);
    expect(first.memoryUsage).toBeLessThan(64 * 1024 * 1024);
  });

  test("a sandbox without logs is drained at once", async () => {
    expect(await awaitDrained(newId())).toBe(true);
    const sandboxId = newId();
    await engine.createContainer({
      Image: image.id,
      ...sandboxIdentity({ sandboxId, workspaceId, installationId }),
    });
    expect(await awaitDrained(sandboxId)).toBe(true);
  });

  test("a running container is not drained, and a service that shuts down does not answer that it is", async () => {
    const { sandboxId } = await run("sleep 3600");
    const refused = awaitDrained(sandboxId).catch((error: unknown) => error);
    await until(
      async () => expect((await telemetry.queryTelemetry({ ...all, sandboxId }, member())).metrics).not.toEqual([]),
      waiting,
    );
    await service.service.drain();
    // Not "no", after which the container would be removed.
    expect(await refused).toMatchObject({ reason: "DRAINING" });
  });

  test("an engine that goes away is logged once, and once when it is back, however many containers there are", async () => {
    await close();
    // Not a Unix socket, which can't reset a connection.
    const listen = { host: "127.0.0.1", port: await findFreePort() };
    const proxy = await openFaultProxy({ listen, to: { path: engineSocket } });
    const lines: { level: string; msg: string }[] = [];
    const log = createLogger({ service: "telemetry" }, { write: (line: string) => void lines.push(JSON.parse(line)) });
    await open(`docker://${listen.host}:${listen.port}`, log);
    const running = await Promise.all([1, 2, 3].map(() => run("while echo here; do sleep 0.1; done")));
    const countLines = () => Promise.all(running.map(async ({ sandboxId }) => (await readLines(sandboxId)).length));
    await until(async () => expect(Math.min(...(await countLines()))).toBeGreaterThan(0), waiting);
    const state = async () => (await service.service.dependencies()).runtime;

    await proxy.set("reset");
    await until(async () => expect(await state()).not.toBe("ok"), waiting);
    const tried = proxy.connections();
    await until(() => expect(proxy.connections()).toBeGreaterThan(tried + 10), waiting);
    await proxy.set("open");
    const before = await countLines();
    await until(async () => expect(await state()).toBe("ok"), waiting);
    await until(async () => {
      for (const [i, count] of (await countLines()).entries()) expect(count).toBeGreaterThan(before[i] ?? 0);
    }, waiting);
    await until(() => expect(lines.at(-1)?.msg).toMatch(/^able to/), waiting);
    const told = lines.filter(({ msg }) => !/^(samples of CPU|everything is sealed)/.test(msg));
    expect(told.map(({ level, msg }) => `${level}: ${msg}`)).toEqual([
      "error: failed to watch the container engine; will retry",
      "info: able to watch the container engine again",
    ]);
    await close();
    await proxy.close();
    await open(engineAddress);
  });

  test("a container of another installation is left alone", async () => {
    const { sandboxId, container } = await run("echo foreign", { installation: newId() });
    await container.wait();
    await container.remove();
    expect(await awaitDrained(sandboxId)).toBe(true);
    expect(await readLines(sandboxId)).toEqual([]);
  });
});
