import { appendFile, mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { expect } from "vitest";
import type { ContainerName } from "./kubelet-samples.ts";
import { openPodSource } from "./pod-source.ts";

const logger = createLogger({ service: "telemetry", level: "silent" });
const { signal } = new AbortController();

/** The pods of a node, by the folders of their logs, and a kubelet that has figures of all. */
function openNode(folder: string) {
  const sampled: ContainerName[] = [];
  let problem: string | undefined;
  const source = openPodSource({
    folder,
    namespace: "sandboxes",
    samples: {
      async find(container) {
        sampled.push(container);
        return { timeNs: 1n, cpuSeconds: 2, memoryBytes: 3 };
      },
      problem: () => problem,
    },
    logger,
  });
  return {
    source,
    sampled,
    fail(why: string) {
      problem = why;
    },
    async addPod(o: { namespace?: string; sandboxId?: string; hasRun?: boolean } = {}) {
      const [uid, sandboxId] = [newId(), o.sandboxId ?? newId()];
      const pod = join(folder, `${o.namespace ?? "sandboxes"}_sandgate-${sandboxId}_${uid}`);
      const logs = join(pod, "sandbox");
      const run = async () => {
        await mkdir(logs, { recursive: true });
        await writeFile(join(logs, "0.log"), "");
      };
      await mkdir(pod);
      if (o.hasRun ?? true) await run();
      const write = (text: string) => appendFile(join(logs, "0.log"), `2026-11-22T16:14:06Z stdout F ${text}\n`);
      return { uid, sandboxId, run, write, remove: () => rm(pod, { recursive: true }) };
    },
  };
}

test("lists the sandboxes of its namespaces on this node, with what has become of them", async ({ folder }) => {
  const { source, addPod } = openNode(folder);
  const [created, running, ended] = [await addPod({ hasRun: false }), await addPod(), await addPod()];
  const sharded = await addPod({ namespace: "sandboxes-12" });
  const successor = await addPod({ sandboxId: ended.sandboxId, hasRun: false });
  for (const namespace of ["kube-system", "sandboxesx", "sandboxes-x", "other-sandboxes"]) await addPod({ namespace });
  await mkdir(join(folder, `sandboxes_nginx_${newId()}`));
  expect(await source.markEnded(ended.sandboxId)).toBe(true);
  const states = async (sandboxId?: string) =>
    Object.fromEntries((await source.list({ sandboxId, signal })).map(({ id, state }) => [id, state]));
  expect(await states()).toEqual({
    [created.uid]: "created",
    [running.uid]: "running",
    [ended.uid]: "ended",
    [sharded.uid]: "running",
    [successor.uid]: "created",
  });
  expect(await states(running.sandboxId)).toEqual({ [running.uid]: "running" });
  expect(await source.inspect(ended.uid, signal)).toMatchObject({ state: "ended", sandboxId: ended.sandboxId });

  // One that has not run can't have ended, and is no node's that has none of it.
  expect(await source.markEnded(created.sandboxId)).toBe(false);
  expect(await source.markEnded(newId())).toBe(false);
  await created.run();
  await running.remove();
  expect(await states()).toEqual({
    [created.uid]: "running",
    [ended.uid]: "ended",
    [sharded.uid]: "running",
    [successor.uid]: "created",
  });
  expect(await source.inspect(running.uid, signal)).toBeUndefined();
});

test("tells which containers start, and which are gone", async ({ folder }) => {
  const { source, addPod } = openNode(folder);
  const [first, second] = [await addPod(), await addPod({ hasRun: false })];
  const events = source.watch(signal)[Symbol.asyncIterator]();
  expect((await events.next()).value).toEqual({ containerId: first.uid, action: "start" });
  await second.run();
  expect((await events.next()).value).toEqual({ containerId: second.uid, action: "start" });
  await first.remove();
  expect((await events.next()).value).toEqual({ containerId: first.uid, action: "destroy" });
  await events.return?.();
});

test("a container whose folder is removed while it is read has ended once all of it was read, and is forgotten then", async ({
  folder,
}) => {
  const { source, addPod } = openNode(folder);
  const pod = await addPod();
  const [container] = await source.list({ signal });
  if (!container) throw new Error("the pod is not listed");
  const texts: string[] = [];
  const reading = (async () => {
    for await (const { rows } of source.readLogs(container, "", { follow: true, signal })) {
      texts.push(...rows.map(({ log }) => log));
    }
  })();
  await pod.write("1");
  await until(() => expect(texts).toEqual(["1"]));
  await pod.remove();
  await reading;
  expect(await source.inspect(pod.uid, signal)).toMatchObject({ id: pod.uid, state: "ended" });
  expect(await source.inspect(pod.uid, signal)).toBeUndefined();
});

test("has samples of its pods until they have ended", async ({ folder }) => {
  const { source, addPod, sampled } = openNode(folder);
  const pod = await addPod({ namespace: "sandboxes-3" });
  await source.list({ signal });
  const sample = source.openSampler(pod.uid);
  expect(await sample(signal)).toMatchObject({ cpuSeconds: 2 });
  const name = { namespace: "sandboxes-3", pod: `sandgate-${pod.sandboxId}`, container: "sandbox" };
  expect(sampled).toEqual([name]);
  await source.markEnded(pod.sandboxId);
  expect(await sample(signal)).toBeUndefined();
  expect(sampled).toHaveLength(1);
  expect(await source.openSampler(newId())(signal)).toBeUndefined();
});

test("that the kubelet has no figures is a problem for as long as a sandbox runs", async ({ folder }) => {
  const { source, addPod, fail } = openNode(folder);
  fail("it refuses");
  const pod = await addPod();
  await addPod({ hasRun: false });
  expect(source.problem?.()).toBeUndefined();
  await source.list({ signal });
  expect(source.problem?.()).toBe("it refuses");
  await source.markEnded(pod.sandboxId);
  expect(source.problem?.()).toBeUndefined();
});
