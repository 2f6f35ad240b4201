import { openTestCluster, type TestCluster } from "@sandgate/test-support/cluster";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { startRegistry, type TestRegistry } from "@sandgate/test-support/registry";
import { afterAll, beforeAll, describe } from "vitest";
import { clusterHost, testSandboxesOn } from "../../conformance/sandbox-host.ts";
import { describeSuite } from "../../conformance/suite.ts";
import { suiteSettings } from "../../conformance/suite-settings.ts";
import { testRunning } from "../../conformance/target.ts";
import type { TestPlatform } from "../../platform/local.ts";
import { startOnCluster } from "../../platform/on-cluster.ts";
import { requireOwnCluster } from "../pod-platform.ts";

// The platform reads the files of a node, so this machine must be one.
const isAvailable = await requireOwnCluster();

describe.runIf(isAvailable)("the public API in one process, with sandboxes as pods,", () => {
  const closing = new AsyncDisposableStack();
  let cluster: TestCluster;
  let registry: TestRegistry;
  let platform: TestPlatform;
  const registryHost = () => cluster.registry ?? registry.host;

  testRunning(() => ({ ...platform, urls: [platform.url] }));
  testSandboxesOn(() => clusterHost({ kubectl: cluster.kubectl, registry: registryHost() }));

  beforeAll(async () => {
    cluster = closing.adopt(await openTestCluster(), (each) => each.stop());
    registry = closing.adopt(await startRegistry(), (each) => each.stop());
    const page = await makeImage({
      command: ["/bin/sh", "-c", "httpd -f -vv -p 8080 -h /www"],
      files: { "www/index.html": "hello\n" },
    });
    const reference = await pushImage(page, { host: registryHost(), repository: "sandgate/default" });
    platform = closing.adopt(
      await startOnCluster(cluster, {
        collects: true,
        settings: {
          ...suiteSettings,
          SANDGATE_REGISTRY_ALLOW: registryHost(),
          SANDGATE_DEFAULT_IMAGE: `default=${reference},8080`,
        },
      }),
      (each) => each.stop(),
    );
  });
  afterAll(() => closing.disposeAsync());

  describeSuite();
});
