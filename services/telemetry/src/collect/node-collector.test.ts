import { appendFile, mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { newId } from "@sandgate/kit/base/ids";
import { asService } from "@sandgate/kit/rpc/context";
import { LogStream, SourceKind } from "@sandgate/proto/telemetry/v1/telemetry";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { afterEach, expect } from "vitest";
import { openTestNode, type TestNode } from "./node-collector.fixture.ts";

const namespace = "sandboxes";

let node: TestNode;
let podLogs: string;
const workspaces = new Map<string, string>();

test.beforeEach(async ({ folder }) => {
  podLogs = join(folder, "pods");
  await mkdir(podLogs);
  node = await openTestNode({
    folder,
    settings: {
      namespace,
      podLogs,
      // What is asked for figures isn't there; logs are read all the same.
      kubeletUrl: "https://127.0.0.1:1",
      kubeletTokenFile: "/nowhere",
      kubeletCaFile: "/nowhere",
      kubeletVerify: true,
    },
    workspaceOf: (sandboxId) => workspaces.get(sandboxId),
  });
});
afterEach(() => node.close());

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

test("lines become those of the sandbox's workspace, and an ended pod is drained once its log was read", async () => {
  const workspaceId = newId();
  const pod = await runPod();
  workspaces.set(pod.sandboxId, workspaceId);
  node.startCollector();
  await pod.write("one");
  await until(async () => expect(await node.readLines(pod.sandboxId, workspaceId)).toEqual(["one"]));
  await pod.write("two");
  expect(await node.awaitDrained(pod.sandboxId)).toBe(true);
  expect(await node.readLines(pod.sandboxId, workspaceId)).toEqual(["one", "two"]);
  await expect(node.readLines(pod.sandboxId, newId())).rejects.toMatchObject({ reason: "SANDBOX_NOT_FOUND" });
});

test("what was written while no collector ran is read by the next one, and nothing twice", async () => {
  const workspaceId = newId();
  const pod = await runPod();
  workspaces.set(pod.sandboxId, workspaceId);
  const first = node.startCollector();
  await pod.write("1");
  await until(async () => expect(await node.readLines(pod.sandboxId, workspaceId)).toEqual(["1"]));
  await first.stop();
  await pod.write("2");
  expect(await node.awaitDrained(pod.sandboxId, 3)).toBe(false);
  node.startCollector();
  await pod.write("3");
  expect(await node.awaitDrained(pod.sandboxId)).toBe(true);
  expect(await node.readLines(pod.sandboxId, workspaceId)).toEqual(["1", "2", "3"]);
});

test("a pod whose folder is removed has all its lines, also those just written", async () => {
  const workspaceId = newId();
  const pod = await runPod();
  workspaces.set(pod.sandboxId, workspaceId);
  node.startCollector();
  await pod.write("first");
  await until(async () => expect(await node.readLines(pod.sandboxId, workspaceId)).toEqual(["first"]));
  await pod.write("last");
  await pod.remove();
  await until(async () => expect(await node.readLines(pod.sandboxId, workspaceId)).toEqual(["first", "last"]));
  expect(await node.awaitDrained(pod.sandboxId)).toBe(true);
});

test("sandboxes of a deleted workspace, whose lines are refused, are drained", async () => {
  const workspaceId = newId();
  const [before, after] = [newId(), newId()];
  for (const sandboxId of [before, after]) workspaces.set(sandboxId, workspaceId);
  const waiting = node.awaitDrained(before);
  await node.telemetry.deleteWorkspace(workspaceId);
  expect(await waiting).toBe(true);
  expect(await node.awaitDrained(after)).toBe(true);
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
  node.startCollector();
  await until(async () => expect(await node.readLines(own.sandboxId, workspaceId)).toEqual(["line"]));
  // Read one after the other by then, if at all.
  const last = await runPod();
  workspaces.set(last.sandboxId, workspaceId);
  await last.write("line");
  await until(async () => expect(await node.readLines(last.sandboxId, workspaceId)).toEqual(["line"]));
  workspaces.set(unknown.sandboxId, workspaceId);
  for (const { sandboxId } of [...others, unknown]) expect(await node.readLines(sandboxId, workspaceId)).toEqual([]);
});

test("a collector may store and learn what ends, and neither reads anything nor says whose a sandbox is", async () => {
  const { collector } = node.telemetry.as;
  const [sandboxId, workspaceId] = [newId(), newId()];
  const refused = { reason: "CALLER_NOT_ALLOWED" };
  await expect(collector.queryTelemetry({ sandboxId }, asService())).rejects.toMatchObject(refused);
  await expect(collector.awaitDrained({ sandboxId, timeoutSeconds: 1 }, asService())).rejects.toMatchObject(refused);
  const tail = collector.tailTelemetry({ sandboxId }, asService())[Symbol.asyncIterator]();
  await expect(tail.next()).rejects.toMatchObject(refused);
  await expect(async () => {
    for await (const _ of node.telemetry.as.facade.watchDrains({}, asService())) return;
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
  await expect(node.readLines(sandboxId, foreign)).rejects.toMatchObject({ reason: "SANDBOX_NOT_FOUND" });
  expect(await node.readLines(sandboxId, workspaceId)).toEqual(["x"]);
});
