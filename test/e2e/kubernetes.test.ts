import { openTestCluster, probeCluster } from "@sandgate/test-support/cluster";
import { probeRegistry, startRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { clusterHost, testSandboxesOn } from "../conformance/sandbox-host.ts";
import { type RunningService, suiteSettings, testRunning } from "../conformance/target.ts";
import { deployed } from "../deploy/cluster-rights.ts";
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
        settings: suiteSettings,
      }),
      (each) => each.stop(),
    );
    ({ adminUrl } = local);
    service = { ...local, urls: [local.url] };
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
  describe("life, as on an engine", async () => {
    await import("../conformance/life.test.ts");
  });
  describe("commands, as on an engine", async () => {
    await import("../conformance/commands.test.ts");
  });
  describe("terminals, as on an engine", async () => {
    await import("../conformance/terminals.test.ts");
  });
  describe("files, as on an engine", async () => {
    await import("../conformance/files.test.ts");
  });
  describe("archives and watches, as on an engine", async () => {
    await import("../conformance/archives.test.ts");
  });
  describe("previews, as on an engine", async () => {
    await import("../conformance/previews.test.ts");
  });
  describe("the audit log of use, as on an engine", async () => {
    await import("../conformance/audit-of-use.test.ts");
  });
  describe("ports, as on an engine", async () => {
    await import("../conformance/ports.test.ts");
  });

  test("all of that has left the sandboxes' network policy as it was made", async () => {
    const path = `/apis/networking.k8s.io/v1/namespaces/${deployed.sandboxes}/networkpolicies`;
    const { items } = (await platform.cluster.call("GET", path)) as { items: { metadata: { generation: number } }[] };
    expect(items.map(({ metadata }) => metadata.generation)).toEqual([1]);
  });
});
