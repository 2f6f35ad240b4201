import { readdirSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { newId } from "@sandgate/kit/base/ids";
import { LogStream } from "@sandgate/proto/telemetry/v1/telemetry";
import { applyRights, createToken, deployed } from "@sandgate/test/deploy/cluster-rights";
import { type OwnCluster, openTestCluster, probeCluster, type TestCluster } from "@sandgate/test-support/cluster";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { probeRegistry, startRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { until } from "@sandgate/test-support/until";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { openTestNode, type TestNode } from "../collect/node-collector.fixture.ts";
import { createCgroupFinder } from "../docker/cgroups.ts";

const isAvailable = await requireServer("kubernetes", async () => {
  // The collector reads the files of a node, so this must be one.
  if (process.env.KUBECONFIG) throw new Error("the cluster at KUBECONFIG has its nodes elsewhere");
  await probeCluster();
  await probeRegistry();
});

describe.runIf(isAvailable)("the collector of a real node", () => {
  const { sandboxes: namespace } = deployed;
  const workspaceId = newId();
  const closing = new AsyncDisposableStack();
  let cluster: TestCluster;
  let own: OwnCluster;
  let image: string;
  let node: TestNode;

  beforeAll(async () => {
    // As small as the kubelet has them, so that logs are rotated and compressed while the tests run; none is removed
    // unread.
    const kubelet = { containerLogMaxSize: "64Ki", containerLogMaxFiles: 30, containerLogMonitorInterval: "3s" };
    cluster = closing.adopt(await openTestCluster({ kubelet }), (each) => each.stop());
    if (!cluster.own) throw new Error("unreachable: the cluster was started here");
    own = cluster.own;
    const registry = closing.adopt(await startRegistry(), (each) => each.stop());
    const { host } = registry;
    image = await pushImage(await makeImage({ command: ["sh"] }), { host, repository: "team/app" });
    await applyRights(cluster);
    const { path: folder } = closing.use(await createTempFolder());
    const kubeletTokenFile = join(folder, "token");
    await writeFile(kubeletTokenFile, await createToken(cluster, deployed.collector));
    node = closing.adopt(
      await openTestNode({
        folder,
        settings: {
          namespace,
          podLogs: own.podLogsFolder,
          kubeletUrl: own.kubeletUrl,
          kubeletTokenFile,
          kubeletCaFile: own.certificateAuthority,
          kubeletVerify: true,
        },
        workspaceOf: () => workspaceId,
      }),
      (each) => each.close(),
    );
  });
  afterEach(() => node.stopCollectors());
  afterAll(() => closing.disposeAsync());

  async function runPod(script: string): Promise<{ sandboxId: string; name: string }> {
    const sandboxId = newId();
    const name = `sandgate-${sandboxId}`;
    await cluster.call("POST", `/api/v1/namespaces/${namespace}/pods`, {
      metadata: { name, finalizers: ["sandgate.io/sandbox"] },
      spec: {
        restartPolicy: "Never",
        terminationGracePeriodSeconds: 1,
        containers: [{ name: "sandbox", image, command: ["sh", "-c", script] }],
      },
    });
    return { sandboxId, name };
  }
  const statusOf = async (name: string, path: string) =>
    cluster.kubectl("get", "pod", `--namespace=${namespace}`, name, `--output=jsonpath={.status.${path}}`);
  const untilPhase = (name: string, phase: string) =>
    until(async () => expect(await statusOf(name, "phase")).toBe(phase), { intervalMs: 200 });

  const readLines = (sandboxId: string) => node.readLines(sandboxId, workspaceId);

  test("has every line once, over rotations and restarts of itself and of the kubelet, and the last ones of an ended pod", async () => {
    const padding = "x".repeat(400);
    // Until it is told to end. Then it says how many lines there were.
    const line = `echo "$i ${padding}"; i=$((i+1)); [ $((i%10)) = 0 ] && sleep 0.1`;
    const script = `i=0; until [ -e /tmp/enough ]; do ${line}; done; echo oops >&2; printf "$i"`;
    const { sandboxId, name } = await runPod(script);
    const first = node.startCollector();
    await until(async () => expect((await readLines(sandboxId)).length).toBeGreaterThan(50));
    await first.stop();
    await own.kubelet.kill();
    await own.kubelet.start();
    const [podFolder = ""] = readdirSync(own.podLogsFolder).filter((each) => each.includes(sandboxId));
    const files = () => readdirSync(join(own.podLogsFolder, podFolder, "sandbox"));
    // While nobody reads.
    await until(() => expect(files().some((file) => file.endsWith(".gz"))).toBe(true), { intervalMs: 100 });
    await cluster.kubectl("exec", `--namespace=${namespace}`, name, "--", "touch", "/tmp/enough");
    node.startCollector();
    await untilPhase(name, "Succeeded");
    expect(await node.awaitDrained(sandboxId)).toBe(true);
    const { logs } = await node.query(sandboxId, workspaceId);
    const stdout = logs.filter(({ stream }) => stream === LogStream.STDOUT).map(({ log }) => log);
    const count = Number(stdout.at(-1));
    expect(stdout).toEqual([...Array.from({ length: count }, (_, i) => `${i} ${padding}`), `${count}`]);
    expect(logs.filter(({ stream }) => stream === LogStream.STDERR).map(({ log }) => log)).toEqual(["oops"]);
  });

  test("reads a pod that is deleted to the end, while its finalizer keeps it", async () => {
    const { sandboxId, name } = await runPod(`trap 'echo bye; exit 0' TERM; echo hello; while :; do sleep 0.1; done`);
    node.startCollector();
    await until(async () => expect(await readLines(sandboxId)).toEqual(["hello"]));
    await cluster.kubectl("delete", "pod", `--namespace=${namespace}`, name, "--wait=false");
    await untilPhase(name, "Succeeded");
    expect(await node.awaitDrained(sandboxId)).toBe(true);
    expect(await readLines(sandboxId)).toEqual(["hello", "bye"]);
    await cluster.kubectl(
      "patch",
      "pod",
      `--namespace=${namespace}`,
      name,
      "--type=merge",
      '--patch={"metadata":{"finalizers":null}}',
    );
  });

  test("has the figures of the container's control group, as those on Docker are", async () => {
    const { sandboxId, name } = await runPod("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exec sleep 3600");
    node.startCollector();
    await untilPhase(name, "Running");
    const containerId = (await statusOf(name, "containerStatuses[0].containerID")).replace("containerd://", "");
    const pid = findProcess(containerId);
    const cgroup = await createCgroupFinder()({ containerId, pid });
    await until(async () => {
      const last = (await node.query(sandboxId, workspaceId)).metrics.at(-1);
      const now = cgroup.read();
      expect(now?.cpuSeconds).toBeGreaterThan(0.05);
      expect(last?.cpuUsage).toBeCloseTo(now?.cpuSeconds ?? -1, 2);
      expect(last?.memoryUsage).toBe(now?.memoryBytes);
    });
    const { metrics } = await node.query(sandboxId, workspaceId);
    const times = metrics.map(({ timestamp }) => Number(timestamp?.seconds) * 1e9 + (timestamp?.nanos ?? 0));
    expect(new Set(times).size).toBe(times.length);
  });
});

/** A process of a container, by its control group. */
function findProcess(containerId: string): number {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  const found = pids.find((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cgroup`, "utf8").includes(containerId);
    } catch {
      // It has ended.
      return false;
    }
  });
  if (found === undefined) throw new Error(`no process of ${containerId}`);
  return Number(found);
}
