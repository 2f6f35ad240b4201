import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import type { EventBus } from "@sandgate/kit/events/bus";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { asFacade, asService } from "@sandgate/kit/rpc/context";
import { applyRights, createToken, deployed } from "@sandgate/test/deploy/cluster-rights";
import { type OwnCluster, openTestCluster, probeCluster, type TestCluster } from "@sandgate/test-support/cluster";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { probeRegistry, startRegistry, type TestRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { until } from "@sandgate/test-support/until";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { createCgroupFinder } from "./docker/cgroups.ts";
import { type NodeCollector, startNodeCollector } from "./node-collector.ts";
import { openTestService, type TestService } from "./service.fixture.ts";

const logger = createLogger({ service: "telemetry", level: process.env.SANDGATE_LOG_LEVEL ?? "silent" });
const isAvailable = await requireServer("kubernetes", async () => {
  // The collector reads the files of a node, so this must be one.
  if (process.env.KUBECONFIG) throw new Error("the cluster at KUBECONFIG has its nodes elsewhere");
  await probeCluster();
  await probeRegistry();
});

describe.runIf(isAvailable)("the collector of a real node", () => {
  const { sandboxes: namespace } = deployed;
  const workspaceId = newId();
  let cluster: TestCluster;
  let own: OwnCluster;
  let registry: TestRegistry;
  let image: string;
  let folder: string;
  let removeFolder: () => Promise<void>;
  let bus: EventBus;
  let telemetry: TestService;
  let collectors: NodeCollector[] = [];

  beforeAll(async () => {
    ({ path: folder, remove: removeFolder } = await createTempFolder());
    // As small as the kubelet has them, so that logs are rotated, compressed and removed while the tests run.
    const kubelet = { containerLogMaxSize: "64Ki", containerLogMaxFiles: 6, containerLogMonitorInterval: "3s" };
    cluster = await openTestCluster({ kubelet });
    if (!cluster.own) throw new Error("unreachable: the cluster was started here");
    own = cluster.own;
    registry = await startRegistry();
    const host = cluster.registry ?? registry.host;
    image = await pushImage(await makeImage({ command: ["sh"] }), { host, repository: "team/app" });
    await applyRights(cluster);
    writeFileSync(join(folder, "token"), await createToken(cluster, deployed.collector));
    bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics: createMetrics() });
    telemetry = await openTestService({
      runtime: "kubernetes:",
      installationId: newId(),
      database: { kind: "sqlite", file: join(folder, "telemetry.sqlite") },
      bus,
      keysFile: join(folder, "keys.json"),
      logger,
      workspaceOf: () => workspaceId,
      settings: { SANDGATE_KUBELET_URL: own.kubeletUrl, SANDGATE_POD_LOGS: folder },
    });
  });
  afterEach(async () => {
    await Promise.all(collectors.map((collector) => collector.stop()));
    collectors = [];
  });
  afterAll(async () => {
    await telemetry?.close();
    await bus?.close();
    await registry?.stop();
    await cluster?.stop();
    await removeFolder?.();
  });

  function startCollector(): NodeCollector {
    const client = telemetry.as.collector;
    const collector = startNodeCollector({
      settings: {
        namespace,
        podLogs: own.podLogsFolder,
        kubeletUrl: own.kubeletUrl,
        kubeletTokenFile: join(folder, "token"),
        kubeletCaFile: own.certificateAuthority,
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

  async function read(sandboxId: string) {
    const user = { id: "u1", credential: "session", credentialId: "s1", operator: false } as const;
    const call = asFacade({ requestId: newId(), user: { ...user, workspaceId, role: "member" } });
    const query = { sandboxId, includeLogs: true, includeMetrics: true, limit: 10_000 };
    return telemetry.as.facade.queryTelemetry(query, call);
  }
  const readLines = async (sandboxId: string) => (await read(sandboxId)).logs.map(({ log }) => log);
  const awaitDrained = async (sandboxId: string) =>
    (await telemetry.as.sandbox.awaitDrained({ sandboxId, timeoutSeconds: 30 }, asService({ timeoutMs: 0 }))).drained;

  test("has every line once, over rotations and restarts of itself and of the kubelet, and the last ones of an ended pod", async () => {
    const lines = 3_000;
    const padding = "x".repeat(60);
    const script = `i=0; while [ $i -lt ${lines} ]; do echo "$i ${padding}"; i=$((i+1)); [ $((i%10)) = 0 ] && sleep 0.05; done; echo oops >&2; printf end`;
    const { sandboxId, name } = await runPod(script);
    const first = startCollector();
    await until(async () => expect((await readLines(sandboxId)).length).toBeGreaterThan(50));
    await first.stop();
    await own.kubelet.kill();
    await own.kubelet.start();
    const [podFolder = ""] = readdirSync(own.podLogsFolder).filter((each) => each.includes(sandboxId));
    const files = () => readdirSync(join(own.podLogsFolder, podFolder, "sandbox"));
    // While nobody reads.
    await until(() => expect(files().some((file) => file.endsWith(".gz"))).toBe(true));
    startCollector();
    await untilPhase(name, "Succeeded");
    expect(await awaitDrained(sandboxId)).toBe(true);
    const { logs } = await read(sandboxId);
    const stdout = logs.filter(({ stream }) => stream === 1).map(({ log }) => log);
    expect(stdout).toEqual([...Array.from({ length: lines }, (_, i) => `${i} ${padding}`), "end"]);
    expect(logs.filter(({ stream }) => stream === 2).map(({ log }) => log)).toEqual(["oops"]);
  });

  test("reads a pod that is deleted to the end, while its finalizer keeps it", async () => {
    const { sandboxId, name } = await runPod(`trap 'echo bye; exit 0' TERM; echo hello; while :; do sleep 0.1; done`);
    startCollector();
    await until(async () => expect(await readLines(sandboxId)).toEqual(["hello"]));
    await cluster.kubectl("delete", "pod", `--namespace=${namespace}`, name, "--wait=false");
    await untilPhase(name, "Succeeded");
    expect(await awaitDrained(sandboxId)).toBe(true);
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
    startCollector();
    await untilPhase(name, "Running");
    const containerId = (await statusOf(name, "containerStatuses[0].containerID")).replace("containerd://", "");
    const pid = findProcess(containerId);
    const cgroup = await createCgroupFinder()({ containerId, pid });
    await until(async () => {
      const last = (await read(sandboxId)).metrics.at(-1);
      const now = cgroup.read();
      expect(now?.cpuSeconds).toBeGreaterThan(0.05);
      expect(last?.cpuUsage).toBeCloseTo(now?.cpuSeconds ?? -1, 2);
      expect(last?.memoryUsage).toBe(now?.memoryBytes);
    });
    const { metrics } = await read(sandboxId);
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
