import { afterAll, beforeAll, describe } from "vitest";
import { clusterHost, testSandboxesOn } from "../../conformance/sandbox-host.ts";
import { describeSuite } from "../../conformance/suite.ts";
import { suiteSettings } from "../../conformance/suite-settings.ts";
import { testRunning } from "../../conformance/target.ts";
import { type ClusterPlatform, requireInCluster, startInCluster } from "../../platform/in-cluster/platform.ts";

describe.runIf(await requireInCluster())("the public API as pods of a cluster", () => {
  let platform: ClusterPlatform;

  testRunning(() => ({ ...platform, urls: [platform.url] }));
  testSandboxesOn(() => clusterHost({ kubectl: platform.cluster.kubectl, registry: platform.registry }));

  beforeAll(async () => {
    // Twenty sandboxes at once beside the processes, on two cores.
    const settings = { ...suiteSettings, SANDGATE_SANDBOX_CPU_REQUEST_MILLIS: "10" };
    platform = await startInCluster({ settings, replicas: 2 });
  });
  afterAll(() => platform?.stop());

  describeSuite();
});
