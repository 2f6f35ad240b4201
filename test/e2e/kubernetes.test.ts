import { openTestCluster, probeCluster } from "@sandgate/test-support/cluster";
import { probeRegistry, startRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { clusterHost, testSandboxesOn } from "../conformance/sandbox-host.ts";
import { describeFiles } from "../conformance/suite.ts";
import { suiteSettings } from "../conformance/suite-settings.ts";
import { type RunningService, testRunning } from "../conformance/target.ts";
import { deployed } from "../deploy/cluster-rights.ts";
import { settingsOfPrograms } from "../e2b/program.ts";
import { testOn } from "../platform/given.ts";
import { startOnCluster } from "../platform/on-cluster.ts";
import { openOperator } from "../platform/operator.ts";
import { isRemoved, linesOf, type PodsPlatform, reaches, registerImage, testPods } from "./pods.ts";

const isAvailable = await requireServer("kubernetes", async () => {
  await probeCluster();
  await probeRegistry();
});

describe.runIf(isAvailable)("the platform in one process, with sandboxes as pods", () => {
  const closing = new AsyncDisposableStack();
  let platform: PodsPlatform;
  let adminUrl: string;
  let registryHost: string;
  let service: RunningService;

  beforeAll(async () => {
    const cluster = closing.adopt(await openTestCluster(), (each) => each.stop());
    const registry = closing.adopt(await startRegistry(), (each) => each.stop());
    const credential = { username: "alice", password: "correct horse" };
    const privateRegistry = closing.adopt(await startRegistry({ users: [credential] }), (each) => each.stop());
    registryHost = cluster.registry ?? registry.host;
    const local = closing.adopt(
      await startOnCluster(cluster, {
        collects: cluster.own !== undefined,
        helperRegistry: registryHost,
        settings: { ...settingsOfPrograms, ...suiteSettings },
      }),
      (each) => each.stop(),
    );
    ({ adminUrl } = local);
    service = { ...local, urls: [local.url] };
    testOn({ ...local, stop: async () => {} });
    platform = {
      cluster,
      operator: await openOperator(local),
      registry: registryHost,
      privateRegistry: { host: privateRegistry.host, credential },
      collects: cluster.own !== undefined,
      kill: () => local.kill(),
      start: () => local.start(),
    };
  });
  afterAll(() => closing.disposeAsync());

  test.concurrent("has all lines of a sandbox that ended by itself at once", async ({ skip }) => {
    const { operator, collects } = platform;
    skip(!collects, "the cluster at KUBECONFIG has its nodes elsewhere");
    const id = await operator.provision(await registerImage(platform, ["sh", "-c", "seq 1 2000; exit 3"]));
    await reaches(platform, id, "failed", "exited");
    await isRemoved(platform, id);
    expect(await linesOf(platform, id)).toEqual(Array.from({ length: 2_000 }, (_, i) => `${i + 1}`));
    // Nothing was given up.
    const metrics = await (await fetch(`${adminUrl}/metrics`)).text();
    expect(metrics).toMatch(/^sandgate_sandbox_logs_lost_total 0$/m);
  });

  testPods(() => platform);

  testRunning(() => service);
  testSandboxesOn(() => clusterHost({ kubectl: platform.cluster.kubectl, registry: registryHost }));
  describeFiles([
    ["life", () => import("../conformance/life.test.ts")],
    ["commands", () => import("../conformance/commands.test.ts")],
    ["commands at limits", () => import("../conformance/command-limits.test.ts")],
    ["terminals", () => import("../conformance/terminals.test.ts")],
    ["files", () => import("../conformance/files.test.ts")],
    ["archives and watches", () => import("../conformance/archives.test.ts")],
    ["previews", () => import("../conformance/previews.test.ts")],
    ["what opens and ends previews", () => import("../conformance/preview-ends.test.ts")],
    ["ports", () => import("../conformance/ports.test.ts")],
    ["those who read nothing", () => import("../conformance/stuck-readers.test.ts")],
    ["what a tenant finds inside", () => import("../conformance/inside.test.ts")],
    ["the audit log of use", () => import("../conformance/audit-of-use.test.ts")],
    ["E2B's SDKs", () => import("../e2b/sdk.test.ts")],
  ]);

  test("all of that has left the sandboxes' network policy as it was made", async () => {
    const path = `/apis/networking.k8s.io/v1/namespaces/${deployed.sandboxes}/networkpolicies`;
    const { items } = (await platform.cluster.call("GET", path)) as { items: { metadata: { generation: number } }[] };
    expect(items.map(({ metadata }) => metadata.generation)).toEqual([1]);
  });
});
