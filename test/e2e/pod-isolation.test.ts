import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { openTestCluster, probeCluster, probePolicies, type TestCluster } from "@sandgate/test-support/cluster";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { probeRegistry, startRegistry, type TestRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectStatus } from "../conformance/client.ts";
import { deployed } from "../deploy/cluster-rights.ts";
import type { TestPlatform } from "../platform/local.ts";
import { startOnCluster } from "../platform/on-cluster.ts";
import { type Operator, openOperator } from "../platform/operator.ts";
import { addOutsideAddress, listenAt, reachScript, type Target } from "../platform/reach.ts";

/** Stands in for a cloud's metadata service, which is at another link-local address. */
const linkLocal = "169.254.78.78";
/** Processes that a pod may have: the node's setting. */
const podPidsLimit = 128;

const isAvailable = await requireServer("kubernetes", async () => {
  await probeCluster();
  await probeRegistry();
});
const enforces = await requireServer("kube-router", probePolicies);

describe.runIf(isAvailable)("a sandbox that is a pod, as a hostile tenant sees it", { concurrent: true }, () => {
  const closing = new AsyncDisposableStack();
  let cluster: TestCluster;
  let registry: TestRegistry;
  let platform: TestPlatform;
  let operator: Operator;

  beforeAll(async () => {
    cluster = closing.adopt(await openTestCluster({ enforcePolicies: enforces, kubelet: { podPidsLimit } }), (each) =>
      each.stop(),
    );
    registry = closing.adopt(await startRegistry(), (each) => each.stop());
    platform = closing.adopt(
      // Where a sandbox could reach it.
      await startOnCluster(cluster, { settings: { SANDGATE_HOST: "0.0.0.0" } }),
      (each) => each.stop(),
    );
    operator = await openOperator(platform);
  });
  afterAll(() => closing.disposeAsync());

  const namespace = `--namespace=${deployed.sandboxes}`;

  async function provision(command: readonly string[], changes: object = {}): Promise<string> {
    const image = await makeImage({ command, files: { "www/index.html": "hello\n" } });
    const reference = await pushImage(image, { host: cluster.registry ?? registry.host, repository: "team/app" });
    return operator.provision(await operator.registerImage(reference, changes));
  }

  async function provisionReady(command: readonly string[], changes: object = {}): Promise<string> {
    const id = await provision(command, changes);
    expectStatus(await operator.wait(id), 200);
    return id;
  }

  const readPod = async (sandboxId: string) =>
    (await cluster.call("GET", `/api/v1/namespaces/${deployed.sandboxes}/pods/sandgate-${sandboxId}`)) as {
      metadata: { uid: string };
      status: { podIP: string };
    };

  /** Runs a script in a sandbox and answers the lines it logged before its last one, "done". */
  async function runInSandbox(script: string): Promise<string[]> {
    const sandboxId = await provisionReady(["sh", "-c", `${script}\necho done\nsleep 3600`]);
    const lines = async () =>
      (await cluster.kubectl("logs", namespace, `sandgate-${sandboxId}`)).split("\n").filter(Boolean);
    await until(async () => expect((await lines()).at(-1)).toBe("done"), { intervalMs: 200 });
    const logged = await lines();
    expectStatus(await operator.delete(`/sandboxes/${sandboxId}`, operator.as), 204);
    return logged.slice(0, -1);
  }

  test("has nothing of the platform or the cluster in its environment", async () => {
    const lines = await runInSandbox("tr '\\0' '\\n' < /proc/1/environ");
    // Where the API server is, a kubelet tells every pod; the platform overwrites it.
    const names = lines.filter((line) => !/^KUBERNETES_[A-Z0-9_]+=$/.test(line)).map((line) => line.split("=")[0]);
    expect(names.toSorted()).toEqual(["HOME", "HOSTNAME", "PATH"]);
  });

  test("has no token, no names of the cluster, and nothing of its node but what a kubelet writes for it", async () => {
    const lines = await runInSandbox(
      [
        "cat /etc/resolv.conf /etc/hosts /etc/hostname | sed 's/^/file: /'",
        "hostname | sed 's/^/file: /'",
        "ls -d /var/run/secrets /run/secrets /var/run/docker.sock /run/containerd /host 2>/dev/null | sed 's/^/found: /'",
        // Files that come from the node; the rest is the container's own.
        'awk \'$1 ~ "^/dev/" {print "from the node: " $2}\' /proc/mounts',
        "grep -iE 'secret|token|kubelet|docker.sock|containerd.sock' /proc/mounts | sed 's/^/mounted: /'",
        "find /dev -type b | sed 's/^/device: /'",
        // Each process's number, to see whose there are.
        "for each in /proc/[0-9]*; do tr '\\0\\n' '  ' <$each/cmdline 2>/dev/null | cut -c1-60 | sed 's/^/process: /'; echo; done",
      ].join("\n"),
    );
    const reported = (kind: string) =>
      lines.filter((line) => line.startsWith(`${kind}: `)).map((line) => line.slice(kind.length + 2));
    expect(reported("found")).toEqual([]);
    expect(reported("mounted")).toEqual([]);
    expect(reported("device")).toEqual([]);
    expect(reported("from the node").toSorted()).toEqual([
      "/dev/termination-log",
      "/etc/hostname",
      "/etc/hosts",
      "/etc/resolv.conf",
    ]);
    const files = reported("file");
    expect(files.filter((line) => line.startsWith("nameserver"))).toEqual(["nameserver 1.1.1.1", "nameserver 8.8.8.8"]);
    const ofCluster = /cluster\.local|svc|search .*[a-z]|kubernetes|sandgate-sandboxes/i;
    expect(files.filter((line) => ofCluster.test(line) && !line.includes("Kubernetes-managed hosts file"))).toEqual([]);
    if (cluster.own) expect(files.join("\n")).not.toContain(cluster.own.nodeName);
    // Its own, and those of this script.
    for (const command of reported("process").filter((line) => line.trim() !== ""))
      expect(command).toMatch(/^(sh|tr|cut|sed)\b/);
  });

  test("can use none of the kernel's privileges", async () => {
    const group =
      "$(dirname $(ls /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/memory/cgroup.procs 2>/dev/null | head -n 1))";
    const attempts = {
      mknod: "mknod /tmp/disk b 8 0",
      mount: "mount -t tmpfs none /mnt || mount -t proc none /tmp",
      chroot: "chroot / true",
      "a namespace of users": "unshare -r true || unshare -U true",
      "a namespace of mounts": "unshare -m true",
      "the namespaces of process 1": "nsenter -t 1 -m true",
      "a network address": "ip address add 192.0.2.99/32 dev eth0",
      "a link": "ip link set eth0 down",
      "a raw socket": "ping -c 1 -W 1 127.0.0.1",
      "a setting of the kernel": "echo 1 >/proc/sys/kernel/panic",
      "a setting of the network": "echo 1 >/proc/sys/net/ipv4/ip_forward",
      sysrq: "echo h >/proc/sysrq-trigger",
      // Those of version 1 lie below a folder that may well be written to.
      "control groups": `mkdir ${group}/more`,
      "the memory limit": `echo 1000000000 >${group}/memory.limit_in_bytes || echo 1000000000 >${group}/memory.max`,
      "the kernel's log": "dmesg",
      "the kernel's memory": "head -c 1 /proc/kcore | grep -q .",
      "a module": "insmod /etc/hostname",
      "the clock": "date -s @0; [ $(date +%s) -lt 1000000 ]",
      "its hostname": "hostname other",
      "a better place in the queue": "nice -n -5 true",
    };
    const lines = await runInSandbox(
      [
        "grep -E '^(Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp):' /proc/self/status",
        ...Object.entries(attempts).map(
          ([name, attempt]) => `(${attempt}) >/dev/null 2>&1 && echo 'could do: ${name}'`,
        ),
      ].join("\n"),
    );
    expect(lines.filter((line) => line.startsWith("could do"))).toEqual([]);
    // CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID, SETPCAP and NET_BIND_SERVICE.
    const mask = [0, 1, 3, 5, 6, 7, 8, 10].reduce((sum, bit) => sum + 2 ** bit, 0);
    const kept = mask.toString(16).padStart(16, "0");
    expect(lines.map((line) => line.replace(/\s+/g, " "))).toEqual([
      `CapPrm: ${kept}`,
      `CapEff: ${kept}`,
      `CapBnd: ${kept}`,
      "CapAmb: 0000000000000000",
      "NoNewPrivs: 1",
      "Seccomp: 2",
    ]);
  });

  test("affects nobody else with a fork bomb, which its node's limit ends", async ({ skip }) => {
    if (!cluster.own) skip("only a cluster that was started here has this limit");
    const serve = ["httpd", "-f", "-p", "8000", "-h", "/www"];
    const neighbour = await provisionReady(serve, { readiness_port: 8000 });
    // The inner shell ends when it can fork no more; the outer then keeps its CPU busy without forking.
    const bomb = `trap 'exit 0' TERM; (while true; do sleep 600 & done) 2>/dev/null; echo full; while :; do :; done`;
    const bombId = await provision(["sh", "-c", bomb], { readiness_port: 8080 });
    const log = () => cluster.kubectl("logs", namespace, `sandgate-${bombId}`);
    await until(async () => expect(await log()).toContain("full"), { intervalMs: 200 });

    const { uid } = (await readPod(bombId)).metadata;
    const figures = await readPidsGroup(uid);
    expect(figures.limit).toBe(podPidsLimit);
    expect(figures.used).toBeLessThanOrEqual(podPidsLimit);
    expect(figures.used).toBeGreaterThan(podPidsLimit / 2);

    await provisionReady(serve, { readiness_port: 8000 });
    expect(await operator.read(neighbour)).toMatchObject({ state: "ready" });
    expectStatus(await operator.delete(`/sandboxes/${bombId}`, operator.as), 204);
    await until(async () => expect((await operator.read(bombId)).state).toBe("stopped"));
  });

  test.runIf(enforces)(
    "reaches neither the platform, the API server, its node, a neighbour nor link-local addresses",
    async () => {
      const { own } = cluster;
      if (!own?.network) throw new Error("the node has no network of its own");
      const { hostAddress } = own.network;
      await addOutsideAddress(own.network, linkLocal);
      closing.defer(await listenAt(linkLocal, 80));
      const neighbour = await provisionReady(["httpd", "-f", "-p", "8000", "-h", "/www"], { readiness_port: 8000 });
      const portOf = (url: string) => Number(new URL(url).port);
      const targets: Target[] = [
        { name: "platform", address: hostAddress, port: portOf(platform.url) },
        { name: "API server", address: hostAddress, port: portOf(cluster.server) },
        { name: "kubelet", address: own.nodeAddress, port: portOf(own.kubeletUrl) },
        { name: "link-local", address: linkLocal, port: 80 },
      ];
      const there = { name: "neighbour", address: (await readPod(neighbour)).status.podIP, port: 8000 };
      // From a pod that no policy is for, to show that what is forbidden would work.
      const reference = await pushImage(await makeImage({ command: ["sleep", "3600"] }), {
        host: registry.host,
        repository: "team/free",
      });
      await cluster.call("POST", "/api/v1/namespaces/default/pods", {
        metadata: { name: "free" },
        spec: { containers: [{ name: "app", image: reference }] },
      });
      const all = targets.map(({ name }) => name).toSorted();
      await until(async () => {
        const output = await cluster.kubectl("exec", "free", "--", "sh", "-c", reachScript(targets));
        expect(output.split("\n").filter(Boolean).toSorted()).toEqual(all);
      });
      const tries = Array.from({ length: 3 }, () => reachScript([...targets, there])).join("\n");
      expect(await runInSandbox(tries)).toEqual([]);
    },
  );
});

/** How many processes a pod may have and has, by the control group that its kubelet made. */
async function readPidsGroup(uid: string): Promise<{ limit: number; used: number }> {
  const folder = await findFolder("/sys/fs/cgroup/pids", `pod${uid}`).catch(() =>
    findFolder("/sys/fs/cgroup", `pod${uid}`),
  );
  if (folder === undefined) throw new Error(`no control group of pod ${uid} was found`);
  const read = async (name: string) => Number(await readFile(join(folder, name), "utf8"));
  return { limit: await read("pids.max"), used: await read("pids.current") };
}

async function findFolder(path: string, name: string): Promise<string | undefined> {
  for (const entry of await readdir(path, { withFileTypes: true })) {
    if (!entry.isDirectory()) continue;
    const below = join(path, entry.name);
    if (entry.name === name) return below;
    const found = await findFolder(below, name);
    if (found !== undefined) return found;
  }
  return undefined;
}
