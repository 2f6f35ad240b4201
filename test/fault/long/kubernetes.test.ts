import { readFile, writeFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { openApiProxy } from "@sandgate/test-support/api-proxy";
import type { TestCluster } from "@sandgate/test-support/cluster";
import { openFaultProxy } from "@sandgate/test-support/fault-proxy";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { findFreePort } from "@sandgate/test-support/process";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { createClient, expectStatus } from "../../conformance/client.ts";
import { applyRights, deployed } from "../../deploy/cluster-rights.ts";
import { podPath } from "../../e2e/pods.ts";
import { createCallers } from "../callers.ts";
import { crash } from "../outages.ts";
import {
  expectPodsConsistent,
  type PodPlatform,
  removeWorkspaces,
  requireOwnCluster,
  startPodPlatform,
  writer,
} from "../pod-platform.ts";

vi.setConfig({ testTimeout: 900_000 });

const isAvailable = await requireOwnCluster();

/** As small as the kubelet has them, so that logs are rotated all the time. */
const smallLogs = { containerLogMaxSize: "64Ki", containerLogMaxFiles: 12, containerLogMonitorInterval: "3s" };

describe.runIf(isAvailable)("a cluster that fails for a while under the platform", () => {
  let on: PodPlatform;
  let imageId: string;

  beforeAll(async () => {
    on = await startPodPlatform({ cluster: { kubelet: smallLogs } });
    imageId = await on.register(writer);
  });
  afterAll(() => on?.stop());

  test("an API server that is away for a minute under load, and crashes of all else, cost no sandbox and no line", async () => {
    const { own, platform, operator } = on;
    const { journal, send } = createCallers({
      facades: [createClient(platform.url)],
      operator,
      imageId,
      callers: 4,
    });
    await send(60);
    const before = journal.requests;
    await send(60, crash(own.apiServer, 60_000));
    for (const program of [own.scheduler, own.controllerManager, own.kubelet, own.containerd]) {
      await send(30, crash(program, 3_000));
    }
    await send(30, crash(platform));
    expect(journal.requests).toBeGreaterThan(before + 60);
    await expectPodsConsistent(journal, on);
    await removeWorkspaces(journal, on);
  });

  test("a node that is short of memory evicts sandboxes, by their name also where they ended with 0", async () => {
    const { own, operator, reaches } = on;
    const evicted = await operator.provisionReady(imageId);
    await own.configureKubelet({
      evictionSoft: { "memory.available": "99%" },
      evictionSoftGracePeriod: { "memory.available": "1s" },
      evictionMaxPodGracePeriod: 5,
      evictionPressureTransitionPeriod: "1s",
    });
    await crash(own.kubelet);
    const failed = await reaches(evicted, "failed", "evicted");
    expect(failed.message).toContain("memory");
    await own.configureKubelet({ evictionSoft: {}, evictionSoftGracePeriod: {} });
    await crash(own.kubelet);
    await operator.provisionReady(imageId);
  });

  test("a Secret that is deleted by hand is made again, at each step", async () => {
    const { proxy, cluster, operator } = on;
    const secrets = `/api/v1/namespaces/${deployed.sandboxes}/secrets`;
    const { imageId: privateId, stop } = await on.registerPrivate(writer);
    try {
      const remove = (id: string) => cluster.call("DELETE", `${secrets}/sandgate-${id}`);
      // Before the gate goes: the adapter can't take it off yet.
      proxy.refuse(({ method, path }) => (method === "PATCH" && path.includes("/pods/") ? { status: 500 } : undefined));
      const gated = await operator.provision(privateId);
      await until(() => remove(gated));
      proxy.refuse(() => undefined);
      expectStatus(await operator.wait(gated), 200);

      // After that, before the pull: no node takes it yet.
      await cluster.kubectl("cordon", on.own.nodeName);
      const waiting = await operator.provision(privateId);
      await until(async () => expect(await on.podOf(waiting)).not.toHaveProperty("spec.schedulingGates"));
      await remove(waiting);
      await cluster.kubectl("uncordon", on.own.nodeName);
      expectStatus(await operator.wait(waiting), 200);
      await until(async () =>
        expect(await cluster.kubectl("get", "secrets", `--namespace=${deployed.sandboxes}`, "--output=name")).toBe(""),
      );
    } finally {
      await stop();
    }
  });

  test("each line of a busy sandbox comes once, over rotations, and crashes of collector and kubelet", async () => {
    const { own, platform, operator } = on;
    const padding = "x".repeat(60);
    const last = 6_000;
    const script = `i=0; while [ $i -lt ${last} ]; do i=$((i+1)); echo "$i ${padding}"; [ $((i%20)) = 0 ] && sleep 0.1; done; sleep 3600`;
    const busy = await on.register(["sh", "-c", script]);
    const ids = [await operator.provisionReady(busy), await operator.provisionReady(busy)];
    const hasLines = (count: number) =>
      until(async () => expect((await on.linesOf(ids[0] ?? "")).length).toBeGreaterThan(count), { intervalMs: 200 });
    await hasLines(200);
    await crash(platform, 3_000);
    await hasLines(1_200);
    await crash(own.kubelet, 5_000);
    await hasLines(2_400);
    await platform.terminate();
    await platform.start();
    await Promise.all([platform.kill(), own.kubelet.kill()]);
    await Promise.all([platform.start(), own.kubelet.start()]);
    for (const id of ids) {
      await until(async () => expect((await on.linesOf(id)).length).toBeGreaterThanOrEqual(last), { intervalMs: 500 });
      expect(await on.linesOf(id)).toEqual(Array.from({ length: last }, (_, index) => `${index + 1} ${padding}`));
      expectStatus(await operator.delete(`/sandboxes/${id}`, operator.as), 204);
      await on.reaches(id, "stopped", "stopped_by_user");
    }
  });

  test("a watch whose versions are compacted away finds what happened meanwhile", async () => {
    const { cluster, own, proxy, operator } = on;
    const [gone, staying] = [await operator.provisionReady(imageId), await operator.provisionReady(imageId)];
    proxy.refuse(() => ({ status: 503 }));
    proxy.cut();
    const finalizers = '--patch={"metadata":{"finalizers":null}}';
    const pod = `sandgate-${gone}`;
    await cluster.kubectl("patch", "pod", "--namespace=sandgate-sandboxes", pod, "--type=merge", finalizers);
    await cluster.kubectl("delete", "pod", "--namespace=sandgate-sandboxes", pod, "--now");
    const { metadata } = (await cluster.call("GET", podPath())) as { metadata: { resourceVersion: string } };
    const compacted = await fetch(`${own.etcdUrl}/v3/kv/compaction`, {
      method: "POST",
      body: JSON.stringify({ revision: metadata.resourceVersion, physical: true }),
    });
    expect(compacted.status).toBe(200);
    // What the API server remembers of changes goes with it.
    await crash(own.apiServer);
    await until(() => cluster.call("GET", podPath()), { intervalMs: 200 });
    proxy.refuse(() => undefined);
    await on.reaches(gone, "failed", "runtime_lost");
    await on.reaches(staying, "ready", null);
    const watch = ({ path }: { path: string }) => path.includes("watch=true");
    const lists = ({ method, path }: { method: string; path: string }) =>
      method === "GET" && /\/pods\?/.test(path) && !watch({ path });
    expect(proxy.count(lists)).toBeGreaterThan(1);
    await operator.provisionReady(imageId);
  });
});

describe.runIf(isAvailable)("parts of a cluster that fail for longer than the platform waits", () => {
  let on: PodPlatform;
  let imageId: string;

  beforeAll(async () => {
    on = await startPodPlatform({
      // So that a proxy can read what it says.
      cluster: { kubelet: { contentType: "application/json" } },
      settings: {
        SANDGATE_NODE_LOST_SECONDS: "5",
        SANDGATE_SCHEDULING_TIMEOUT_SECONDS: "10",
        SANDGATE_PULL_TIMEOUT_SECONDS: "20",
      },
    });
    imageId = await on.register(writer);
  });
  afterAll(() => on?.stop());

  test("an image whose pull hangs fails in time, and holds up nobody else", async () => {
    const { cluster, own, registry, operator } = on;
    const port = await findFreePort();
    const stalling = await openFaultProxy({
      listen: { host: "127.0.0.1", port },
      to: { host: "127.0.0.1", port: Number(registry.host.split(":")[1]) },
    });
    try {
      const image = await makeImage({ command: ["sleep", "3600"] });
      const reference = await pushImage(image, { host: `127.0.0.1:${port}`, repository: "team/stalls" });
      const stalls = await operator.registerImage(reference);
      await cluster.kubectl("cordon", own.nodeName);
      const id = await operator.provision(stalls);
      await until(() => on.podOf(id));
      await stalling.set("silent");
      await cluster.kubectl("uncordon", own.nodeName);
      await until(async () => expect((await on.podOf(id)).spec.nodeName).toBe(own.nodeName));
      await operator.provisionReady(imageId);
      await on.reaches(id, "failed", "pull_timeout");
      // The kubelet has the pod until its own pull ends.
      await until(async () => expect((await on.podOf(id)).metadata).not.toHaveProperty("finalizers"));
      await stalling.set("down");
      await on.isRemoved(id);
    } finally {
      await stalling.close();
    }
  });

  test("a sandbox that no scheduler looks at fails in time", async () => {
    const { own, operator } = on;
    await own.scheduler.kill();
    const id = await operator.provision(imageId);
    await on.reaches(id, "failed", "unschedulable");
    await own.scheduler.start();
    await operator.provisionReady(imageId);
  });

  test.each([60_000, -60_000])(
    "a node whose clock is off by %i ms runs sandboxes for as long as they may",
    async (offMs) => {
      const { cluster, own, operator } = on;
      const kubelet = await openApiProxy({
        server: cluster.server,
        certificate: own.certificates.server,
        certificateAuthority: own.certificateAuthority,
        client: own.certificates.node,
      });
      const config = await readFile(own.kubeletKubeconfig, "utf8");
      try {
        // All that the kubelet tells the API server is by its clock.
        kubelet.rewrite(({ path }, body) =>
          /\/status|\/leases|\/events/.test(path)
            ? body.replace(/"(\d{4}-\d\d-\d\dT[\d:.]+Z)"/g, (_, time) => {
                const shifted = new Date(Date.parse(time) + offMs).toISOString();
                return JSON.stringify(
                  time.includes(".") ? shifted.replace("Z", "000Z") : shifted.replace(/\.\d+Z/, "Z"),
                );
              })
            : body,
        );
        await own.kubelet.kill();
        await writeFile(own.kubeletKubeconfig, config.replace(/https:\/\/[\d.:]+/, kubelet.url));
        await own.kubelet.start();
        const acceptedAt = Date.now();
        const expiring = await on.register(writer, { ttl_seconds: 60 });
        const id = await operator.provisionReady(expiring);
        const sandbox = await operator.read(id);
        const { status, spec } = await on.podOf(id);
        expect(Math.abs(Date.parse(status.startTime ?? "") - acceptedAt - offMs)).toBeLessThan(30_000);
        const startedAt = Date.parse(sandbox.timeline.find(({ phase }: { phase: string }) => phase === "started").at);
        expect(startedAt).toBeGreaterThan(acceptedAt - 1_000);
        expect(startedAt).toBeLessThan(Date.parse(sandbox.ready_at) + 1_000);
        expect(Date.parse(sandbox.expires_at) - startedAt).toBe(60_000);
        // The kubelet counts by its own clock alone.
        await until(async () => expect((await on.podOf(id)).spec.activeDeadlineSeconds).toBeLessThan(75));
        expect(spec.nodeName).toBe(own.nodeName);
        await until(async () => expect((await on.linesOf(id)).length).toBeGreaterThan(0), { intervalMs: 500 });
        await on.reaches(id, "stopped", "ttl_expired");
        const lines = await on.linesOf(id);
        expect(lines).toEqual(lines.map((_, index) => `line ${index + 1}`));
      } finally {
        await own.kubelet.kill();
        await writeFile(own.kubeletKubeconfig, config);
        await own.kubelet.start();
        await kubelet.close();
      }
    },
  );

  test("a node that is gone loses its sandboxes by name, and takes others once it is back", async () => {
    const { cluster, own, operator } = on;
    await using _other = await addNode(cluster);
    const [lost, stopped] = [await operator.provisionReady(imageId), await operator.provisionReady(imageId)];
    await own.kubelet.kill();
    await until(async () => {
      const taints = await cluster.kubectl("get", "node", own.nodeName, "--output=jsonpath={.spec.taints}");
      expect(taints).toContain("unreachable");
    });
    expectStatus(await operator.delete(`/sandboxes/${stopped}`, operator.as), 204);
    await on.reaches(lost, "failed", "node_lost");
    await on.reaches(stopped, "stopped", "stopped_by_user");
    const waiting = await operator.provision(imageId);
    await on.reaches(waiting, "failed", "unschedulable");
    await own.kubelet.start();
    await until(async () => expect(await on.listPods()).toEqual([]), { intervalMs: 500 });
    const next = await until(() => operator.provisionReady(imageId), { intervalMs: 1_000 });

    // Now its object goes too, as a cloud's controller has it.
    await own.kubelet.kill();
    await cluster.kubectl("delete", "node", own.nodeName);
    await on.reaches(next, "failed", "node_lost");
    await until(async () => expect(await on.listPods()).toEqual([]), { intervalMs: 500 });
    await own.kubelet.start();
    await until(() => operator.provisionReady(imageId), { intervalMs: 1_000 });
  });

  test("a namespace that is deleted fails new sandboxes with their cause until it is back", async () => {
    const { cluster, operator, platform } = on;
    const running = await operator.provisionReady(imageId);
    await cluster.kubectl("delete", "namespace", deployed.sandboxes, "--wait=false");
    await on.reaches(running, "failed", "runtime_lost");
    await on.finishNamespace();
    const early = await operator.provision(imageId);
    const { message } = await on.reaches(early, "failed", "runtime_unavailable");
    expect(message).toMatch(/namespace sandgate-sandboxes is missing/);
    await until(
      async () => {
        const states = await (await fetch(`${platform.adminUrl}/readyz`)).text();
        expect(states).toMatch(/"sandbox.runtime":"[^"]*namespace sandgate-sandboxes is missing/);
      },
      { intervalMs: 500 },
    );
    const next = await operator.provision(imageId);
    await applyRights(cluster);
    expectStatus(await operator.wait(next), 200);
  });
});

/**
 * A second node that answers and takes no pods: where all nodes are away, the control plane holds itself to be the
 * cause.
 */
async function addNode(cluster: TestCluster): Promise<{ name: string } & AsyncDisposable> {
  const name = "other";
  await cluster.call("POST", "/api/v1/nodes", { metadata: { name }, spec: { unschedulable: true } });
  const ending = new AbortController();
  const beat = async () => {
    while (!ending.signal.aborted) {
      const lastHeartbeatTime = new Date().toISOString();
      const conditions = [{ type: "Ready", status: "True", reason: "KubeletReady", lastHeartbeatTime }];
      await cluster.call("PATCH", `/api/v1/nodes/${name}/status`, { status: { conditions } });
      await delay(1_000, undefined, { signal: ending.signal }).catch(() => {});
    }
  };
  const beating = beat();
  return {
    name,
    async [Symbol.asyncDispose]() {
      ending.abort();
      await beating;
      await cluster.call("DELETE", `/api/v1/nodes/${name}`);
    },
  };
}
