import { openTestCluster, probeCluster } from "@sandgate/test-support/cluster";
import { probeRegistry, startRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, vi } from "vitest";
import { applyRights, createToken, deployed } from "../deploy/cluster-rights.ts";
import { startPlatform } from "../platform/local.ts";
import { openOperator } from "../platform/operator.ts";
import { type PodsPlatform, testPods } from "./pods.ts";

vi.setConfig({ testTimeout: 120_000 });

const isAvailable = await requireServer("kubernetes", async () => {
  await probeCluster();
  await probeRegistry();
});

describe.runIf(isAvailable)("the platform in one process, with sandboxes as pods", () => {
  const closing = new AsyncDisposableStack();
  let platform: PodsPlatform;

  beforeAll(async () => {
    const cluster = closing.adopt(await openTestCluster(), (each) => each.stop());
    const registry = closing.adopt(await startRegistry(), (each) => each.stop());
    const credential = { username: "alice", password: "correct horse" };
    const privateRegistry = closing.adopt(await startRegistry({ users: [credential] }), (each) => each.stop());
    await applyRights(cluster);
    const kubeconfig = await cluster.writeKubeconfig("sandbox", await createToken(cluster, deployed.sandbox));
    const local = closing.adopt(
      await startPlatform({
        settings: {
          SANDGATE_RUNTIME: `kubernetes:${kubeconfig}`,
          SANDGATE_KUBERNETES_NAMESPACE: deployed.sandboxes,
          SANDGATE_REGISTRY_ALLOW: ["127.0.0.0/8", ...(cluster.registry ? [cluster.registry] : [])].join(),
        },
      }),
      (each) => each.stop(),
    );
    platform = {
      cluster,
      operator: await openOperator(local),
      registry: cluster.registry ?? registry.host,
      privateRegistry: { host: privateRegistry.host, credential },
      kill: () => local.kill(),
      start: () => local.start(),
    };
  });
  afterAll(() => closing.disposeAsync());

  testPods(() => platform);
});
