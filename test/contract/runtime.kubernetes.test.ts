import { randomUUID } from "node:crypto";
import { createLogger } from "@sandgate/kit/base/logging";
import { createKubernetesRuntime, type KubernetesRuntimeOptions } from "@sandgate/sandbox/runtime.kubernetes";
import { openTestCluster, probeCluster, type TestCluster } from "@sandgate/test-support/cluster";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { probeRegistry, startRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { describeRuntime, type RuntimeHarness } from "./runtime.ts";

const logger = createLogger({
  service: "runtime-test",
  level: process.env.SANDGATE_LOG_LEVEL === "debug" ? "debug" : "silent",
});
const isAvailable = await requireServer("kubernetes", async () => {
  await probeCluster();
  await probeRegistry();
});

const credential = { username: "alice", password: "correct horse" };

function openRuntime(cluster: TestCluster, installationId: string, changes: Partial<KubernetesRuntimeOptions> = {}) {
  return createKubernetesRuntime({
    address: `kubernetes:${cluster.kubeconfig}`,
    installationId,
    namespace: "sandboxes",
    namespaces: 1,
    isolation: true,
    writesPerSecond: 200,
    logger,
    ...changes,
    pod: {
      cpuRequestMillis: 10,
      diskMb: 64,
      security: "baseline",
      userNamespaces: false,
      runtimeClass: undefined,
      nodeLostSeconds: 60,
      startSeconds: 600,
      ...changes.pod,
    },
    network: { nameservers: ["1.1.1.1"], smtp: false, closed: ["10.0.0.0/8"], deny: [], allow: [], ...changes.network },
  });
}

async function openHarness(): Promise<RuntimeHarness> {
  const closing = new AsyncDisposableStack();
  try {
    return await fillHarness(closing);
  } catch (error) {
    await closing.disposeAsync();
    throw error;
  }
}

async function fillHarness(closing: AsyncDisposableStack): Promise<RuntimeHarness> {
  const cluster = closing.adopt(await openTestCluster(), (each) => each.stop());
  const registry = closing.adopt(await startRegistry(), (each) => each.stop());
  const host = cluster.registry ?? registry.host;
  const installationId = `test-${randomUUID()}`;
  const open = () => {
    const runtime = openRuntime(cluster, installationId);
    closing.defer(() => runtime.close());
    return runtime;
  };
  const runtime = open();
  await runtime.check();
  const podOf = (sandboxId: string) => ["--namespace=sandboxes", `sandgate-${sandboxId}`];
  const publish = async (command: readonly string[], programs?: readonly string[]) => {
    const image = await makeImage({ command, ...(programs && { programs }), files: { "www/index.html": "hello\n" } });
    return pushImage(image, { host, repository: "team/app" });
  };
  return {
    runtime,
    images: undefined,
    openSecond: open,
    makeImage: publish,
    shortestGraceSeconds: 2,
    network: undefined,
    limitsProcesses: false,
    async exec(sandboxId, command) {
      // kubectl passes the exit code on, and says so on its own behalf besides.
      const [namespace = "", pod = ""] = podOf(sandboxId);
      return cluster.kubectl("exec", namespace, pod, "--", ...command).then(
        (output) => ({ exitCode: 0, output }),
        (error: { code?: number; stdout?: string; stderr?: string }) => ({
          exitCode: error.code ?? -1,
          output: `${error.stdout}${error.stderr}`,
        }),
      );
    },
    readLogs: (sandboxId) => cluster.kubectl("logs", ...podOf(sandboxId)).catch(() => ""),
    addressOf: (sandboxId) => cluster.kubectl("get", "pod", ...podOf(sandboxId), "--output=jsonpath={.status.podIP}"),
    registry: { host, credential, publish: () => publish(["sleep", "3600"]) },
    close: () => closing.disposeAsync(),
  };
}

describeRuntime("kubernetes", isAvailable, openHarness);
