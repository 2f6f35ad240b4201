import { execFile } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type OwnCluster, openTestCluster, probeCluster, type TestCluster } from "./cluster.ts";
import { makeImage, pushImage } from "./oci-images.ts";
import { openOutsideCluster, probeOutsideCluster } from "./outside-cluster.ts";
import { probeRegistry, startRegistry, type TestRegistry } from "./registry.ts";
import { requireServer } from "./require.ts";
import { until } from "./until.ts";

const isAvailable = await requireServer("kubernetes", async () => {
  await probeCluster();
  await probeRegistry();
});

const bridges = () => Object.keys(networkInterfaces()).filter((name) => name.startsWith("sgk"));

/** What the clusters of this machine share, and put back as the last of them found it. */
const sharedOnHost = () => ({
  kernel: ["vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops"].map((name) =>
    readFileSync(`/proc/sys/${name}`, "utf8"),
  ),
  folders: ["/var/lib/cni", "/var/log/containers", "/var/log/pods", "/var/lib/kubelet"].map((path) => existsSync(path)),
});

/** How much of each there is on this machine that is a cluster's. */
async function countOnHost({ folder, bridge }: OwnCluster) {
  const env = { PATH: `${process.env.PATH}:/usr/sbin:/sbin` };
  const { stdout: rules } = await promisify(execFile)("iptables-save", { env });
  const mounts = readFileSync("/proc/self/mounts", "utf8");
  const commands = readdirSync("/proc").flatMap((pid) => {
    try {
      return /^\d+$/.test(pid) ? readFileSync(`/proc/${pid}/cmdline`, "utf8") : [];
    } catch {
      // It has ended.
      return [];
    }
  });
  const groups = readdirSync("/sys/fs/cgroup").flatMap((name) => [name, ...readIfFolder(`/sys/fs/cgroup/${name}`)]);
  return {
    folders: Number(existsSync(folder)),
    bridges: bridges().filter((name) => name === bridge).length,
    rules: rules.split("\n").filter((line) => line.includes(bridge)).length,
    mounts: mounts.split("\n").filter((line) => line.includes(`${folder}/`)).length,
    processes: commands.filter((command) => command.includes(`${folder}/`)).length,
    controlGroups: groups.filter((name) => name === bridge.replace("sgk", "sandgate-test-")).length,
  };
}

function readIfFolder(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

describe.runIf(isAvailable)("a test cluster", () => {
  const before = { others: bridges(), ...sharedOnHost() };
  let cluster: TestCluster;
  let registry: TestRegistry;

  beforeAll(async () => {
    cluster = await openTestCluster();
    registry = await startRegistry();
  });
  afterAll(async () => {
    await registry?.stop();
    const there = cluster?.own && (await countOnHost(cluster.own));
    await cluster?.stop();
    if (!cluster?.own || !there) return;
    for (const [kind, count] of Object.entries(there)) expect(count, kind).toBeGreaterThan(0);
    const left = await countOnHost(cluster.own);
    expect(left).toEqual({ folders: 0, bridges: 0, rules: 0, mounts: 0, processes: 0, controlGroups: 0 });
    // Suites run beside one another.
    const others = bridges();
    if (before.others.length + others.length === 0) expect({ others, ...sharedOnHost() }).toEqual(before);
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

  test("that is there already is used by one suite after the other, which take away what they made", async ({
    skip,
  }) => {
    skip(!cluster.own, "the cluster at KUBECONFIG is used so itself");
    const namespaces = async () =>
      (await cluster.kubectl("get", "namespaces", "--output=jsonpath={.items[*].metadata.name}")).split(" ");
    const before = await namespaces();
    const first = await openOutsideCluster(cluster.kubeconfig, registry.host);
    let hasTurn = false;
    const waiting = openOutsideCluster(cluster.kubeconfig, registry.host).then((opened) => {
      hasTurn = true;
      return opened;
    });
    await first.call("POST", "/api/v1/namespaces", { metadata: { name: "sandgate" } });
    await first
      .call("POST", "/api/v1/namespaces/sandgate/serviceaccounts", { metadata: { name: "default" } })
      .catch((error: Error) => expect(error.message).toContain("409"));
    const spec = { containers: [{ name: "app", image: "registry.test/none:1" }] };
    const metadata = { name: "kept", finalizers: ["sandgate.io/sandbox"] };
    await first.call("POST", "/api/v1/namespaces/sandgate/pods", { metadata, spec });
    await first.call("PATCH", "/api/v1/namespaces/sandgate/pods/kept", { metadata: { labels: { a: "b" } } });
    await expect(first.call("GET", "/api/v1/namespaces/sandgate/pods/none")).rejects.toThrow("404");
    await probeOutsideCluster(cluster.kubeconfig);
    expect(hasTurn).toBe(false);
    await first.stop();
    const second = await waiting;
    expect(await namespaces()).toEqual([...before, "sandgate-tests"].toSorted());
    await second.stop();
    await until(async () => expect(await namespaces()).toEqual(before));
    await cluster.kubectl("create", "namespace", "sandgate");
    await expect(probeOutsideCluster(cluster.kubeconfig)).rejects.toThrow("has a namespace sandgate");
  });
});
