import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { openTestCluster, probeCluster, type TestCluster } from "@sandgate/test-support/cluster";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { probeRegistry, startRegistry, type TestRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { expectStatus } from "../conformance/client.ts";
import { applyRights, createToken, deployed } from "../deploy/cluster-rights.ts";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { type Operator, openOperator } from "../platform/operator.ts";

vi.setConfig({ testTimeout: 120_000 });

const isAvailable = await requireServer("kubernetes", async () => {
  // The platform reads the files of a node, so this must be one.
  if (process.env.KUBECONFIG) throw new Error("the cluster at KUBECONFIG has its nodes elsewhere");
  await probeCluster();
  await probeRegistry();
});

describe.runIf(isAvailable)("logs and figures of pods, in one process on their node", () => {
  const closing = new AsyncDisposableStack();
  let cluster: TestCluster;
  let registry: TestRegistry;
  let platform: TestPlatform;
  let operator: Operator;

  beforeAll(async () => {
    cluster = closing.adopt(await openTestCluster(), (each) => each.stop());
    registry = closing.adopt(await startRegistry(), (each) => each.stop());
    const { path: folder } = closing.adopt(await createTempFolder(), ({ remove }) => remove());
    await applyRights(cluster);
    const kubeconfig = await cluster.writeKubeconfig("sandbox", await createToken(cluster, deployed.sandbox));
    const tokenFile = join(folder, "token");
    await writeFile(tokenFile, await createToken(cluster, deployed.collector));
    if (!cluster.own) throw new Error("unreachable: the cluster was started here");
    const { kubeletUrl, podLogsFolder, certificateAuthority } = cluster.own;
    platform = closing.adopt(
      await startPlatform({
        settings: {
          SANDGATE_RUNTIME: `kubernetes:${kubeconfig}`,
          SANDGATE_KUBERNETES_NAMESPACE: deployed.sandboxes,
          SANDGATE_REGISTRY_ALLOW: "127.0.0.0/8",
          SANDGATE_KUBELET_URL: kubeletUrl,
          SANDGATE_KUBELET_TOKEN_FILE: tokenFile,
          SANDGATE_KUBELET_CA_FILE: certificateAuthority,
          SANDGATE_POD_LOGS: podLogsFolder,
        },
      }),
      (each) => each.stop(),
    );
    operator = await openOperator(platform);
  });
  afterAll(() => closing.disposeAsync());

  async function register(command: readonly string[]): Promise<string> {
    const image = await makeImage({ command });
    const reference = await pushImage(image, { host: registry.host, repository: "team/app" });
    return operator.registerImage(reference, { memory_mb: 256 });
  }
  const linesOf = async (sandboxId: string): Promise<string[]> =>
    (await operator.monitor(sandboxId)).logs.map(({ log }: { log: string }) => log);
  const isRemoved = (sandboxId: string) =>
    until(async () => {
      const pod = cluster.call("GET", `/api/v1/namespaces/${deployed.sandboxes}/pods/sandgate-${sandboxId}`);
      await expect(pod).rejects.toThrow("404");
    });

  test("are shown while a sandbox runs, and its last lines once it was stopped and its pod is gone", async () => {
    const script = "trap 'echo bye; exit 0' TERM; echo hello; echo oops >&2; while :; do sleep 0.1; done";
    const id = await operator.provisionReady(await register(["sh", "-c", script]));
    await until(async () => expect((await linesOf(id)).toSorted()).toEqual(["hello", "oops"]));
    await until(async () => {
      const { metrics } = await operator.monitor(id);
      expect(metrics.length).toBeGreaterThan(0);
      expect(metrics.at(-1).memory_usage).toBeGreaterThan(0);
    });
    expectStatus(await operator.delete(`/sandboxes/${id}`, operator.as), 204);
    await isRemoved(id);
    expect((await linesOf(id)).at(-1)).toBe("bye");
  });

  test("are kept of a sandbox that ended by itself at once", async () => {
    const id = await operator.provision(await register(["sh", "-c", "seq 1 2000; exit 3"]));
    await until(async () => expect((await operator.read(id)).state).toBe("failed"));
    await isRemoved(id);
    expect(await linesOf(id)).toEqual(Array.from({ length: 2_000 }, (_, i) => `${i + 1}`));
    // Nothing was given up.
    const metrics = await (await fetch(`${platform.adminUrl}/metrics`)).text();
    expect(metrics).toMatch(/^sandgate_sandbox_logs_lost_total 0$/m);
  });
});
