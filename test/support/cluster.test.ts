import { existsSync, readFileSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openTestCluster, probeCluster, type TestCluster } from "./cluster.ts";
import { makeImage, pushImage } from "./oci-images.ts";
import { probeRegistry, startRegistry, type TestRegistry } from "./registry.ts";
import { requireServer } from "./require.ts";
import { until } from "./until.ts";

const isAvailable = await requireServer("kubernetes", async () => {
  await probeCluster();
  await probeRegistry();
});

const seenOnHost = () => ({
  kernel: ["vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops"].map((name) =>
    readFileSync(`/proc/sys/${name}`, "utf8"),
  ),
  folders: ["/var/lib/cni", "/var/log/containers", "/var/log/pods", "/var/lib/kubelet"].map((path) => existsSync(path)),
  bridges: Object.keys(networkInterfaces()).filter((name) => name.startsWith("sgk")),
  mounts: readFileSync("/proc/self/mounts", "utf8").includes("/pod"),
});

describe.runIf(isAvailable)("a test cluster", () => {
  const before = seenOnHost();
  let cluster: TestCluster;
  let registry: TestRegistry;

  beforeAll(async () => {
    cluster = await openTestCluster();
    registry = await startRegistry();
  });
  afterAll(async () => {
    await registry?.stop();
    await cluster?.stop();
    if (cluster?.own) expect(seenOnHost()).toEqual(before);
  });

  test("runs a pod of an image that no engine has made", async () => {
    const image = await makeImage({ command: ["sh", "-c", "echo hello; sleep 3600"] });
    const reference = await pushImage(image, { host: cluster.registry ?? registry.host, repository: "test/app" });
    const pods = "/api/v1/namespaces/default/pods";
    await cluster.call("POST", pods, {
      metadata: { name: "app" },
      spec: { containers: [{ name: "app", image: reference }] },
    });
    await until(async () => expect(await cluster.kubectl("logs", "app")).toBe("hello\n"), { intervalMs: 100 });
    expect(await cluster.kubectl("exec", "app", "--", "cat", "/etc/image-id")).toMatch(/^[0-9a-f-]{36}$/);
  });
});
