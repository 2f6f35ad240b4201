import { join } from "node:path";
import { newId } from "@sandgate/kit/base/ids";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { asFacade, asService } from "@sandgate/kit/rpc/context";
import {
  applyManifests,
  applyRights,
  deployed,
  readManifests,
  writeSandboxKubeconfig,
} from "@sandgate/test/deploy/cluster-rights";
import { openTestCluster, probeCluster, type TestCluster } from "@sandgate/test-support/cluster";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { probeRegistry, startRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect } from "vitest";
import { logger } from "../collect/node-collector.fixture.ts";
import { openTestService } from "../service.fixture.ts";

const isAvailable = await requireServer("kubernetes", async () => {
  await probeCluster();
  await probeRegistry();
});

describe.runIf(isAvailable)("a platform outside a cluster without collectors", { timeout: 240_000 }, () => {
  const { sandboxes: namespace } = deployed;
  const installationId = newId();
  const workspaceId = newId();
  const closing = new AsyncDisposableStack();
  let cluster: TestCluster;
  let image: string;
  let kubeconfig: string;
  /** What deploy/kubernetes/through-api-server.yaml has. */
  let rights: Awaited<ReturnType<typeof readManifests>>;

  beforeAll(async () => {
    cluster = closing.adopt(await openTestCluster(), (each) => each.stop());
    const registry = closing.adopt(await startRegistry(), (each) => each.stop());
    const host = cluster.registry ?? registry.host;
    image = await pushImage(await makeImage({ command: ["sh"] }), { host, repository: "team/app" });
    await applyRights(cluster);
    kubeconfig = await writeSandboxKubeconfig(cluster);
    rights = await readManifests("through-api-server.yaml");
  });
  afterAll(() => closing.disposeAsync());

  async function runPod(script: string): Promise<{ sandboxId: string; path: string }> {
    const sandboxId = newId();
    const name = `sandgate-${sandboxId}`;
    const labels = { "sandgate.io/sandbox-id": sandboxId, "sandgate.io/installation": installationId };
    await cluster.call("POST", `/api/v1/namespaces/${namespace}/pods`, {
      metadata: { name, labels, finalizers: ["sandgate.io/sandbox"] },
      spec: {
        restartPolicy: "Never",
        terminationGracePeriodSeconds: 1,
        containers: [{ name: "sandbox", image, command: ["sh", "-c", script] }],
      },
    });
    return { sandboxId, path: `/api/v1/namespaces/${namespace}/pods/${name}` };
  }

  /** Telemetry as a process that has the whole platform runs it. */
  async function openPlatform(folder: string) {
    const bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics: createMetrics() });
    const telemetry = await openTestService({
      runtime: `kubernetes:${kubeconfig}`,
      installationId,
      database: { kind: "sqlite", file: join(folder, "telemetry.sqlite") },
      bus,
      keysFile: join(folder, "keys.json"),
      logger,
      workspaceOf: () => workspaceId,
    });
    const user = { id: "u1", credential: "session", credentialId: "s1", operator: false } as const;
    const query = (sandboxId: string) =>
      telemetry.as.facade.queryTelemetry(
        { sandboxId, includeLogs: true, includeMetrics: true, limit: 10_000 },
        asFacade({ requestId: newId(), user: { ...user, workspaceId, role: "member" } }),
      );
    return {
      query,
      readLines: async (sandboxId: string) => (await query(sandboxId)).logs.map(({ log }) => log),
      awaitDrained: async (sandboxId: string) =>
        (await telemetry.as.sandbox.awaitDrained({ sandboxId, timeoutSeconds: 60 }, asService({ timeoutMs: 0 })))
          .drained,
      dependencies: () => telemetry.service.dependencies(),
      async close() {
        await telemetry.close();
        await bus.close();
      },
    };
  }

  test("has every line once, also over a restart of its own, and figures, once it has the rights", async ({
    folder,
  }) => {
    const script = `i=0; until [ -e /tmp/enough ]; do echo "$i"; i=$((i+1)); [ $((i%10)) = 0 ] && sleep 0.1; done; printf "$i"`;
    const { sandboxId, path } = await runPod(script);
    const phaseIs = (phase: string) =>
      until(async () => {
        const pod = (await cluster.call("GET", path)) as { status: { phase: string } };
        expect(pod.status.phase).toBe(phase);
      });
    await phaseIs("Running");
    const without = await openPlatform(folder);
    await until(async () => expect((await without.dependencies()).runtime).toContain("get pods/log"));
    expect(await without.readLines(sandboxId)).toEqual([]);
    await applyManifests(
      cluster,
      rights.filter(({ kind }) => !kind.startsWith("Cluster")),
    );
    await until(async () => expect((await without.readLines(sandboxId)).length).toBeGreaterThan(100));
    await until(async () => expect((await without.dependencies()).runtime).toBe("ok"));
    expect((await without.query(sandboxId)).metrics).toEqual([]);
    await without.close();
    await applyManifests(cluster, rights);
    const platform = await openPlatform(folder);
    const before = (await platform.readLines(sandboxId)).length;
    await until(async () => expect((await platform.readLines(sandboxId)).length).toBeGreaterThan(before + 100));
    await until(async () => expect((await platform.query(sandboxId)).metrics.length).toBeGreaterThan(1));
    await until(async () => expect((await platform.dependencies()).runtime).toBe("ok"));
    await cluster.kubectl(
      "exec",
      `--namespace=${namespace}`,
      path.split("/").at(-1) ?? "",
      "--",
      "touch",
      "/tmp/enough",
    );
    await phaseIs("Succeeded");
    expect(await platform.awaitDrained(sandboxId)).toBe(true);
    const lines = await platform.readLines(sandboxId);
    const count = Number(lines.at(-1));
    expect(lines).toEqual([...Array.from({ length: count }, (_, i) => `${i}`), `${count}`]);
    const { metrics } = await platform.query(sandboxId);
    for (const { memoryUsage } of metrics) expect(memoryUsage).toBeGreaterThan(0);
    await platform.close();
    await cluster.call("PATCH", path, { metadata: { "$deleteFromPrimitiveList/finalizers": ["sandgate.io/sandbox"] } });
  });
});
