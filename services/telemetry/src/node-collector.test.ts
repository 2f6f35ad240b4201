import { appendFile, mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import type { EventBus } from "@sandgate/kit/events/bus";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { asFacade, asService } from "@sandgate/kit/rpc/context";
import { LogStream, SourceKind } from "@sandgate/proto/telemetry/v1/telemetry";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { afterEach, expect } from "vitest";
import { type NodeCollector, startNodeCollector } from "./node-collector.ts";
import { openTestService, type TestService } from "./service.fixture.ts";

const logger = createLogger({ service: "telemetry", level: "silent" });
const namespace = "sandboxes";

let bus: EventBus;
let telemetry: TestService;
let collectors: NodeCollector[];
let podLogs: string;
const workspaces = new Map<string, string>();

test.beforeEach(async ({ folder }) => {
  podLogs = join(folder, "pods");
  await mkdir(podLogs);
  bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics: createMetrics() });
  collectors = [];
  telemetry = await openTestService({
    runtime: "kubernetes:",
    installationId: newId(),
    database: { kind: "sqlite", file: join(folder, "telemetry.sqlite") },
    bus,
    keysFile: join(folder, "keys.json"),
    logger,
    workspaceOf: (sandboxId) => workspaces.get(sandboxId),
    // What is asked for figures isn't there; logs are read all the same.
    settings: { SANDGATE_KUBELET_URL: "https://127.0.0.1:1", SANDGATE_POD_LOGS: join(folder, "other-node") },
  });
});
afterEach(async () => {
  await Promise.all(collectors.map((collector) => collector.stop()));
  await telemetry.close();
  await bus.close();
});

/** A node's collector, which calls as one. */
function startCollector(folder = podLogs): NodeCollector {
  const client = telemetry.as.collector;
  const collector = startNodeCollector({
    settings: {
      namespace,
      podLogs: folder,
      kubeletUrl: "https://127.0.0.1:1",
      kubeletTokenFile: "/nowhere",
      kubeletCaFile: "/nowhere",
      kubeletVerify: true,
    },
    client,
    async *watchDrains(signal) {
      for await (const { sandboxId } of client.watchDrains({}, asService({ signal, timeoutMs: 0 }))) yield sandboxId;
    },
    logger,
    metrics: createMetrics(),
  });
  collectors.push(collector);
  return collector;
}

async function runPod(o: { sandboxId?: string; namespace?: string; container?: string } = {}) {
  const sandboxId = o.sandboxId ?? newId();
  const pod = join(podLogs, `${o.namespace ?? namespace}_sandgate-${sandboxId}_${newId()}`);
  const folder = join(pod, o.container ?? "sandbox");
  await mkdir(folder, { recursive: true });
  const file = join(folder, "0.log");
  await writeFile(file, "");
  return {
    sandboxId,
    write: (text: string) => appendFile(file, `${new Date().toISOString()} stdout F ${text}\n`),
    remove: () => rm(pod, { recursive: true }),
  };
}

async function readLines(sandboxId: string, workspaceId: string): Promise<string[]> {
  const user = { id: "u1", credential: "session", credentialId: "s1", operator: false } as const;
  const call = asFacade({ requestId: newId(), user: { ...user, workspaceId, role: "member" } });
  const { logs } = await telemetry.as.facade.queryTelemetry({ sandboxId, includeLogs: true, limit: 10_000 }, call);
  return logs.map(({ log }) => log);
}

async function awaitDrained(sandboxId: string, timeoutSeconds = 60): Promise<boolean> {
  const { drained } = await telemetry.as.sandbox.awaitDrained(
    { sandboxId, timeoutSeconds },
    asService({ timeoutMs: 0 }),
  );
  return drained;
}

test("lines become those of the sandbox's workspace, and an ended pod is drained once its log was read", async () => {
  const workspaceId = newId();
  const pod = await runPod();
  workspaces.set(pod.sandboxId, workspaceId);
  startCollector();
  await pod.write("one");
  await until(async () => expect(await readLines(pod.sandboxId, workspaceId)).toEqual(["one"]));
  await pod.write("two");
  expect(await awaitDrained(pod.sandboxId)).toBe(true);
  expect(await readLines(pod.sandboxId, workspaceId)).toEqual(["one", "two"]);
  await expect(readLines(pod.sandboxId, newId())).rejects.toMatchObject({ reason: "SANDBOX_NOT_FOUND" });
});

test("what was written while no collector ran is read by the next one, and nothing twice", async () => {
  const workspaceId = newId();
  const pod = await runPod();
  workspaces.set(pod.sandboxId, workspaceId);
  const first = startCollector();
  await pod.write("1");
  await until(async () => expect(await readLines(pod.sandboxId, workspaceId)).toEqual(["1"]));
  await first.stop();
  await pod.write("2");
  expect(await awaitDrained(pod.sandboxId, 3)).toBe(false);
  startCollector();
  await pod.write("3");
  expect(await awaitDrained(pod.sandboxId)).toBe(true);
  expect(await readLines(pod.sandboxId, workspaceId)).toEqual(["1", "2", "3"]);
});

test("a pod whose folder is removed has all its lines, also those just written", async () => {
  const workspaceId = newId();
  const pod = await runPod();
  workspaces.set(pod.sandboxId, workspaceId);
  startCollector();
  await pod.write("first");
  await until(async () => expect(await readLines(pod.sandboxId, workspaceId)).toEqual(["first"]));
  await pod.write("last");
  await pod.remove();
  await until(async () => expect(await readLines(pod.sandboxId, workspaceId)).toEqual(["first", "last"]));
  expect(await awaitDrained(pod.sandboxId)).toBe(true);
});

test("pods of other namespaces and other containers are left alone, and so is a sandbox that nobody knows", async () => {
  const workspaceId = newId();
  const own = await runPod({ namespace: `${namespace}-7` });
  const others = [
    await runPod({ namespace: "kube-system" }),
    await runPod({ namespace: `${namespace}x` }),
    await runPod({ container: "sidecar" }),
  ];
  const unknown = await runPod();
  for (const { sandboxId } of [own, ...others]) workspaces.set(sandboxId, workspaceId);
  for (const pod of [own, ...others, unknown]) await pod.write("line");
  startCollector();
  await until(async () => expect(await readLines(own.sandboxId, workspaceId)).toEqual(["line"]));
  // Read one after the other by then, if at all.
  const last = await runPod();
  workspaces.set(last.sandboxId, workspaceId);
  await last.write("line");
  await until(async () => expect(await readLines(last.sandboxId, workspaceId)).toEqual(["line"]));
  workspaces.set(unknown.sandboxId, workspaceId);
  for (const { sandboxId } of [...others, unknown]) expect(await readLines(sandboxId, workspaceId)).toEqual([]);
});

test("a collector may store and learn what ends, and neither reads anything nor says whose a sandbox is", async () => {
  const { collector } = telemetry.as;
  const [sandboxId, workspaceId] = [newId(), newId()];
  const refused = { reason: "CALLER_NOT_ALLOWED" };
  await expect(collector.queryTelemetry({ sandboxId }, asService())).rejects.toMatchObject(refused);
  await expect(collector.awaitDrained({ sandboxId, timeoutSeconds: 1 }, asService())).rejects.toMatchObject(refused);
  const tail = collector.tailTelemetry({ sandboxId }, asService())[Symbol.asyncIterator]();
  await expect(tail.next()).rejects.toMatchObject(refused);
  await expect(async () => {
    for await (const _ of telemetry.as.facade.watchDrains({}, asService())) return;
  }).rejects.toMatchObject(refused);

  const foreign = newId();
  workspaces.set(sandboxId, workspaceId);
  const unknown = { sandboxId: newId(), workspaceId, containerId: "c", kind: SourceKind.LOGS };
  await expect(collector.ingestTelemetry({ source: unknown, toCursor: "1" }, asService())).rejects.toMatchObject({
    reason: "SANDBOX_NOT_FOUND",
  });
  const source = { sandboxId, workspaceId: foreign, containerId: "c", kind: SourceKind.LOGS };
  const logs = [
    { timestamp: { seconds: BigInt(Math.floor(Date.now() / 1000)), nanos: 0 }, stream: LogStream.STDOUT, log: "x" },
  ];
  await collector.ingestTelemetry({ source, toCursor: "1", logs }, asService());
  await expect(readLines(sandboxId, foreign)).rejects.toMatchObject({ reason: "SANDBOX_NOT_FOUND" });
  expect(await readLines(sandboxId, workspaceId)).toEqual(["x"]);
});
