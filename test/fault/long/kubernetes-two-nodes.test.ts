import { setTimeout as delay } from "node:timers/promises";
import { probePolicies } from "@sandgate/test-support/cluster";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { expectStatus } from "../../conformance/client.ts";
import { deployed } from "../../deploy/cluster-rights.ts";
import { type PodsPlatform, podsPlatformOf, reaches, readPod, registerImage } from "../../e2e/pods.ts";
import { type ClusterPlatform, requireInCluster, startInCluster } from "../../platform/in-cluster/platform.ts";
import { serversNamespace } from "../../platform/in-cluster/servers.ts";
import { reachedBy, type Target } from "../../platform/reach.ts";

vi.setConfig({ testTimeout: 300_000 });

const isAvailable = (await requireServer("kube-router", probePolicies)) && (await requireInCluster());
const { namespace } = deployed.sandbox;

interface Pod {
  metadata: { name: string; labels: Record<string, string>; deletionTimestamp?: string };
  spec: { nodeName: string };
  status: { podIP: string };
}

describe.runIf(isAvailable)("the platform as pods of two nodes", () => {
  const closing = new AsyncDisposableStack();
  let started: ClusterPlatform;
  let platform: PodsPlatform;
  let nodes: string[];
  let serve: string;

  beforeAll(async () => {
    const settings = { SANDGATE_RATE_LIMIT: "0", SANDGATE_SANDBOX_CPU_REQUEST_MILLIS: "10" };
    started = closing.adopt(await startInCluster({ settings, replicas: 2, nodes: 2 }), (each) => each.stop());
    platform = await podsPlatformOf(started);
    nodes = [started.own.nodeName, started.own.second?.nodeName ?? ""];
    const command = ["sh", "-c", "httpd -p 8000 -h /www; while :; do echo tick; sleep 1; done"];
    serve = await registerImage(platform, command, { readiness_port: 8000 });
  });
  afterAll(() => closing.disposeAsync());

  async function listPods(of: string): Promise<Pod[]> {
    const { items } = (await started.cluster.call("GET", `/api/v1/namespaces/${of}/pods`)) as { items: Pod[] };
    return items;
  }
  const processes = async (name: string) =>
    (await listPods(namespace)).filter(({ metadata }) => metadata.labels["app.kubernetes.io/name"] === name);
  const nodeOf = async (sandboxId: string) => ((await readPod(platform, sandboxId)) as Pod).spec.nodeName;

  /** Ids of a ready sandbox on each node, in their order. */
  async function provisionOnBoth(): Promise<[first: string, second: string]> {
    const { operator } = platform;
    const ids = [await operator.provisionReady(serve), await operator.provisionReady(serve)];
    const places = await Promise.all(ids.map(nodeOf));
    expect(places.toSorted()).toEqual(nodes);
    const on = (node: string | undefined) => ids[places.indexOf(node ?? "")] ?? "";
    return [on(nodes[0]), on(nodes[1])];
  }
  const stop = async (...ids: string[]) => {
    const { operator } = platform;
    for (const id of ids) expectStatus(await operator.delete(`/sandboxes/${id}`, operator.as), 204);
    for (const id of ids) await reaches(platform, id, "stopped", "stopped_by_user");
  };

  test("replicas, and sandboxes of one workspace, are on both, and each node's collector reads its own", async () => {
    for (const name of ["facade", "identity", "workspace", "image-registry", "sandbox", "telemetry"]) {
      // An autoscaler adds its second replica when it first looks.
      await until(async () => {
        const places = (await processes(name)).map(({ spec }) => spec.nodeName);
        expect(places.toSorted(), name).toEqual(nodes);
      });
    }
    const collectors = await listPods(deployed.collector.namespace);
    expect(collectors.map(({ spec }) => spec.nodeName).toSorted()).toEqual(nodes);
    const ids = await provisionOnBoth();
    for (const id of ids) {
      await until(async () => {
        const { logs, metrics } = await platform.operator.monitor(id);
        expect(logs.length).toBeGreaterThan(2);
        expect(new Set(logs.map(({ log }: { log: string }) => log))).toEqual(new Set(["tick"]));
        expect(metrics.at(-1).memory_usage).toBeGreaterThan(0);
      });
    }
    await stop(...ids);
  });

  test("network policies hold between nodes", async () => {
    const { cluster } = started;
    const [first, second] = await provisionOnBoth();
    const addressOf = async (id: string) => ((await readPod(platform, id)) as Pod).status.podIP;
    const free = { namespace: "default", name: "free" };
    await cluster.call("POST", "/api/v1/namespaces/default/pods", {
      metadata: { name: free.name },
      spec: {
        nodeName: nodes[0],
        containers: [{ name: "app", image: (await imageOf(first)) ?? "", command: ["sh", "-c", "httpd -f -p 8000"] }],
      },
    });
    await cluster.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "pod/free");
    const freeAddress = ((await cluster.call("GET", "/api/v1/namespaces/default/pods/free")) as Pod).status.podIP;
    const target = (name: string, address: string, port: number): Target => ({ name, address, port });
    const targets = [
      target("sandbox", await addressOf(second), 8000),
      ...(await Promise.all(
        [
          ["facade", 8080],
          ["identity", 8081],
          ["sandbox-service", 8084],
        ].map(async ([name, port]) => {
          const label = name === "sandbox-service" ? "sandbox" : String(name);
          const pod = (await processes(label)).find(({ spec }) => spec.nodeName === nodes[1]);
          return target(String(name), pod?.status.podIP ?? "", Number(port));
        }),
      )),
      target("kubelet", started.own.second?.nodeAddress ?? "", Number(new URL(started.own.kubeletUrl).port)),
    ];
    // Only what a policy opens; and the node, which no policy is for.
    await vi.waitFor(async () => expect(await reachedBy(cluster, free, targets)).toEqual(["facade", "kubelet"]), {
      timeout: 120_000,
      interval: 500,
    });
    const sandboxPod = (id: string) => ({ namespace: deployed.sandboxes, name: `sandgate-${id}` });
    for (let times = 0; times < 3; times++) expect(await reachedBy(cluster, sandboxPod(first), targets)).toEqual([]);
    const back = [target("free", freeAddress, 8000), target("sandbox", await addressOf(first), 8000)];
    expect(await reachedBy(cluster, sandboxPod(second), back)).toEqual([]);
    // What the second couldn't reach is there.
    expect(await reachedBy(cluster, free, [target("free", freeAddress, 8000)])).toEqual(["free"]);

    // From one process to another's replica on the other node.
    const [facade] = (await processes("facade")).filter(({ spec }) => spec.nodeName === nodes[0]);
    const [mongodb] = await listPods(serversNamespace);
    const connect = (address: string, port: number) =>
      cluster.kubectl(
        ...["exec", `--namespace=${namespace}`, facade?.metadata.name ?? "", "--", "node", "-e"],
        `const socket = require("net").connect({ host: "${address}", port: ${port}, timeout: 3000 });
         socket.on("connect", () => { console.log("open"); process.exit(); });
         for (const event of ["error", "timeout"]) socket.on(event, () => { console.log("closed"); process.exit(); });`,
      );
    const service = targets.find(({ name }) => name === "sandbox-service");
    expect(await connect(service?.address ?? "", 8084)).toBe("open\n");
    expect(await connect(service?.address ?? "", 9464)).toBe("closed\n");
    expect(await connect(mongodb?.status.podIP ?? "", 27_017)).toBe("closed\n");
    await cluster.call("DELETE", "/api/v1/namespaces/default/pods/free", { gracePeriodSeconds: 0 });
    await stop(first, second);
  });

  const imageOf = async (id: string) =>
    ((await readPod(platform, id)) as { spec: { containers: { image: string }[] } }).spec.containers[0]?.image;

  test("a drain ends the node's sandboxes with their reason, and the API answers all the while", async () => {
    const { operator, cluster } = platform;
    const [staying, drained] = await provisionOnBoth();
    const [, node = ""] = nodes;
    let draining = true;
    let answers = 0;
    const failed: string[] = [];
    const ask = async () => {
      while (draining) {
        // Reads by every process but telemetry.
        for (const path of [
          `/sandboxes/${staying}`,
          "/sandbox-images",
          "/workspaces",
          `/sandbox/monitoring/${staying}`,
        ]) {
          const answer = await operator
            .get(path, operator.as)
            .catch((error: Error) => ({ status: 0, text: `${error.cause}` }));
          if (answer.status === 200) answers += 1;
          else failed.push(`${path}: ${answer.status} ${answer.text}`);
        }
        await delay(50);
      }
    };
    const asking = ask();
    try {
      const options = ["--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=240s"];
      await cluster.kubectl("drain", node, ...options);
    } finally {
      draining = false;
      await asking;
    }
    expect(failed).toEqual([]);
    expect(answers).toBeGreaterThan(0);
    await reaches(platform, drained, "failed", "node_drained");
    await reaches(platform, staying, "ready", null);
    for (const { spec, metadata } of await listPods(namespace)) {
      if (!metadata.deletionTimestamp) expect([nodes[0], undefined]).toContain(spec.nodeName);
    }
    await cluster.kubectl("uncordon", node);
    await stop(staying);
    await stop(await operator.provisionReady(serve));
  });
});
