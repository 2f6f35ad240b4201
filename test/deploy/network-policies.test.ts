import { createSocket } from "node:dgram";
import { once } from "node:events";
import { newId } from "@sandgate/kit/base/ids";
import { deniedRanges } from "@sandgate/sandbox/denied-ranges";
import { type OwnCluster, openTestCluster, probePolicies, type TestCluster } from "@sandgate/test-support/cluster";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { startProcess } from "@sandgate/test-support/process";
import { probeRegistry, startRegistry, type TestRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { openKubernetesRuntime } from "../platform/kubernetes-runtime.ts";
import { addOutsideAddress, listenAt, reachedBy, reachScript, type Target } from "../platform/reach.ts";
import { applyManifests, buildManifests, deployed } from "./cluster-rights.ts";

const isAvailable = await requireServer("kube-router", async () => {
  await probePolicies();
  await probeRegistry();
});

/** Stand-ins for places, each an address of this machine that only the node's cable leads to. */
const places = {
  outside: "203.0.113.77",
  denied: "198.51.100.7",
  tenNet: "10.199.7.5",
  allowed: "10.199.7.6",
  oneSevenTwo: "172.16.77.5",
  oneNineTwo: "192.168.77.5",
  shared: "100.64.77.5",
  benchmark: "198.18.77.5",
  linkLocal: "169.254.79.79",
  resolver: "203.0.113.53",
  privateResolver: "10.199.7.53",
  otherResolver: "10.199.7.54",
  outside6: "2001:db8:77::1",
  private6: "fd00:77::1",
};

interface PodPlan {
  namespace: string;
  name: string;
  labels?: Record<string, string>;
  ports?: readonly number[];
}

describe.runIf(isAvailable)("network policies, enforced", () => {
  const closing = new AsyncDisposableStack();
  let cluster: TestCluster;
  let own: OwnCluster;
  let network: NonNullable<OwnCluster["network"]>;
  let registry: TestRegistry;
  let programs: string;

  beforeAll(async () => {
    cluster = closing.adopt(await openTestCluster({ enforcePolicies: true }), (each) => each.stop());
    registry = closing.adopt(await startRegistry(), (each) => each.stop());
    if (!cluster.own?.network) throw new Error("the node has no network of its own");
    own = cluster.own;
    network = cluster.own.network;
    for (const address of Object.values(places)) await addOutsideAddress(network, address);
    programs = await publish(["sleep", "3600"]);
  });
  afterAll(() => closing.disposeAsync());

  async function publish(command: readonly string[]): Promise<string> {
    const image = await makeImage({ command, files: { "www/index.html": "hello\n" } });
    return pushImage(image, { host: registry.host, repository: "team/app" });
  }

  async function listen(address: string, port: number): Promise<void> {
    closing.defer(await listenAt(address, port));
  }

  /** Pods that listen on ports, and their addresses of both families once they run. */
  async function startPods(plans: readonly PodPlan[]): Promise<Map<string, string[]>> {
    const pods = plans.map(({ namespace, name, labels = {}, ports = [] }) => ({
      apiVersion: "v1",
      kind: "Pod",
      metadata: { namespace, name, labels },
      spec: {
        automountServiceAccountToken: false,
        terminationGracePeriodSeconds: 1,
        securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: "RuntimeDefault" } },
        containers: [
          {
            name: "app",
            image: programs,
            command: ["sh", "-c", [...ports.map((port) => `httpd -p ${port} -h /www`), "sleep 3600"].join("\n")],
            securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } },
          },
        ],
      },
    }));
    await applyManifests(cluster, pods);
    const addresses = new Map<string, string[]>();
    for (const { namespace, name } of plans) {
      await until(async () => {
        const pod = await cluster.call("GET", `/api/v1/namespaces/${namespace}/pods/${name}`);
        const { status } = pod as { status: { phase: string; podIPs?: { ip: string }[] } };
        expect(status.phase).toBe("Running");
        addresses.set(
          name,
          (status.podIPs ?? []).map(({ ip }) => ip),
        );
      });
    }
    return addresses;
  }

  const namespaceOf = (name: string, labels = {}) => ({
    apiVersion: "v1",
    kind: "Namespace",
    metadata: { name, labels },
  });
  const reaches = (pod: { namespace: string; name: string }, targets: readonly Target[], names: readonly string[]) =>
    vi.waitFor(async () => expect(await reachedBy(cluster, pod, targets)).toEqual(names.toSorted()), {
      timeout: 120_000,
      interval: 500,
    });

  describe("of sandboxes", () => {
    const namespace = deployed.sandboxes;
    const installationId = `test-${newId()}`;
    const nodePort = 10_777;
    let runtime: ReturnType<typeof openRuntime>;
    let targets: Target[];

    function openRuntime(smtp = false) {
      return openKubernetesRuntime(cluster.kubeconfig, installationId, {
        namespace,
        network: {
          nameservers: [places.resolver, places.privateResolver],
          smtp,
          closed: deniedRanges,
          deny: [
            { network: `${places.denied}/32`, port: undefined },
            { network: `${places.outside}/32`, port: 6667 },
          ],
          allow: [{ network: `${places.allowed}/32`, port: 5432 }],
        },
      });
    }

    async function provision(command: readonly string[], readinessPort?: number, by = runtime): Promise<string> {
      const sandboxId = newId();
      const reference = await publish(command);
      const spec = { sandboxId, workspaceId: newId(), reference, memoryMb: 64, cpus: 0.5, pids: 64 };
      await until(async () =>
        expect(await by.ensure({ ...spec, ...(readinessPort && { readinessPort }) })).toMatchObject({
          phase: "running",
        }),
      );
      await until(async () =>
        expect(await by.probe(sandboxId, readinessPort, new AbortController().signal)).toBe(true),
      );
      return `sandgate-${sandboxId}`;
    }

    const serve = ["sh", "-c", "httpd -p 8000 -h /www; sleep 3600"];
    const addressesOf = async (name: string): Promise<string[]> => {
      const pod = await cluster.call("GET", `/api/v1/namespaces/${namespace}/pods/${name}`);
      return (pod as { status: { podIPs: { ip: string }[] } }).status.podIPs.map(({ ip }) => ip);
    };

    beforeAll(async () => {
      const sandboxNamespace = namespaceOf(namespace, { "pod-security.kubernetes.io/enforce": "baseline" });
      await applyManifests(cluster, [sandboxNamespace, namespaceOf("strangers")]);
      const strangers = await startPods([{ namespace: "strangers", name: "stranger", ports: [8000] }]);
      runtime = openRuntime();
      closing.defer(() => runtime.close());
      await runtime.check();
      // A neighbour, and that readiness is asked by HTTP though nothing may come in.
      const neighbour = await addressesOf(await provision(serve, 8000));
      const ports: [string, number][] = [
        [places.outside, 8443],
        [places.outside, 25],
        [places.outside, 6667],
        [places.denied, 8443],
        [places.allowed, 5432],
        [places.allowed, 8443],
        [places.outside6, 8443],
        [places.private6, 8443],
      ];
      const closed = ["tenNet", "oneSevenTwo", "oneNineTwo", "shared", "benchmark", "linkLocal"] as const;
      for (const name of closed) ports.push([places[name], 80]);
      for (const [address, port] of ports) await listen(address, port);
      const [enter = "", ...args] = [...network.enter, "busybox", "httpd", "-f", "-p", `[::]:${nodePort}`];
      const onNode = startProcess(enter, args, { env: { PATH: process.env.PATH } });
      closing.defer(() => onNode.kill());
      const { port: serverPort } = new URL(cluster.server);
      const { port: kubeletPort } = new URL(own.kubeletUrl);
      targets = [
        ...ports.map(([address, port]) => ({ name: `${address} ${port}`, address, port })),
        { name: "kubelet", address: own.nodeAddress, port: Number(kubeletPort) },
        { name: "node", address: own.nodeAddress, port: nodePort },
        { name: "node by IPv6", address: network.nodeAddress6, port: nodePort },
        { name: "API server", address: network.hostAddress, port: Number(serverPort) },
        ...named("neighbour", neighbour),
        ...named("stranger", strangers.get("stranger") ?? []),
      ];
    });

    const named = (name: string, [address = "", address6 = ""]: readonly string[]): Target[] => [
      { name, address, port: 8000 },
      { name: `${name} by IPv6`, address: address6, port: 8000 },
    ];

    describe.concurrent("at the same time", () => {
      test("a sandbox reaches what is outside and what the operator allows, from its first packet on, and nothing else", async () => {
        const stranger = { namespace: "strangers", name: "stranger" };
        // All of them can be reached where no policy is, but for the neighbour, whom its own policy keeps.
        const all = targets.map(({ name }) => name).filter((name) => !name.startsWith("neighbour"));
        await reaches(stranger, targets, all);
        const open = [`${places.outside} 8443`, `${places.allowed} 5432`];
        const name = await provision(serve);
        await reaches({ namespace, name }, targets, open);
        // One that tries at once, over and over, while its node learns of it.
        const eager = await provision(["sh", "-c", `while :; do ${reachScript(targets)}; sleep 0.5; done`]);
        await until(async () => {
          const log = await cluster.kubectl("logs", `--namespace=${namespace}`, eager);
          const reached = [...new Set(log.split("\n").filter(Boolean))];
          expect(reached.toSorted()).toEqual(open.toSorted());
        });
      });

      test("nothing reaches a sandbox but its node's probe", async () => {
        const name = await provision(serve, 8000);
        const there = named("sandbox", await addressesOf(name));
        await reaches({ namespace: "strangers", name: "stranger" }, there, []);
        await reaches({ namespace, name: await provision(serve) }, there, []);
        // To itself it may talk.
        await reaches({ namespace, name }, there, ["sandbox", "sandbox by IPv6"]);
      });

      test("the operator's resolvers answer, a private one too, and no other private one", async () => {
        const resolvers = [places.resolver, places.privateResolver, places.otherResolver];
        for (const address of resolvers) await answerNames(address);
        const name = await provision(serve);
        const lookUp = async (pod: { namespace: string; name: string }) => {
          const script = resolvers
            .map(
              (address) =>
                `timeout 3 nslookup -type=a outside.test ${address} | grep -q ${places.outside} && echo ${address}`,
            )
            .join("\n");
          const where = [`--namespace=${pod.namespace}`, pod.name, "--", "sh", "-c", `${script}\ntrue`];
          return (await cluster.kubectl("exec", ...where)).split("\n").filter(Boolean);
        };
        await until(async () => expect(await lookUp({ namespace: "strangers", name: "stranger" })).toEqual(resolvers));
        await until(async () => expect(await lookUp({ namespace, name })).toEqual(resolvers.slice(0, 2)));
        // Without being told which: its resolv.conf has them.
        const plain = await cluster.kubectl("exec", `--namespace=${namespace}`, name, "--", "nslookup", "outside.test");
        expect(plain).toContain(places.outside);
      });
    });

    test("port 25 is open once the operator opens it", async () => {
      const opened = openRuntime(true);
      try {
        await opened.check();
        const name = await provision(serve, undefined, opened);
        const open = [`${places.outside} 8443`, `${places.outside} 25`, `${places.allowed} 5432`];
        await reaches({ namespace, name }, targets, open);
      } finally {
        await opened.close();
        await runtime.check();
      }
    });

    /** A DNS server that answers each question for an address with that of the place outside (RFC 1035, section 4). */
    async function answerNames(address: string): Promise<void> {
      const socket = createSocket("udp4");
      socket.on("message", (question, from) => {
        const answer = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, ...places.outside.split(".").map(Number)]);
        const reply = Buffer.concat([question, answer]);
        reply.writeUInt16BE(0x8180, 2);
        reply.writeUInt16BE(1, 6);
        socket.send(reply, from.port, from.address);
      });
      socket.bind(53, address);
      await once(socket, "listening");
      closing.defer(() => void socket.close());
    }
  });

  describe("of the platform's processes", () => {
    const ports = [4222, 8080, 8081, 8082, 8083, 8084, 8085, 9464, 27_017];
    const kubelet = 10_250;
    const engineNode = 8084;
    const server = "10.199.7.9";
    let targets: Target[];
    let outside: Target[];
    const pods: PodPlan[] = [
      ...["facade", "identity", "workspace", "image-registry", "sandbox", "telemetry"].map((name) => ({
        namespace: "sandgate",
        name,
        labels: { "app.kubernetes.io/part-of": "sandgate", "app.kubernetes.io/name": name },
      })),
      {
        namespace: "sandgate-collector",
        name: "collector",
        labels: { "app.kubernetes.io/part-of": "sandgate", "app.kubernetes.io/name": "collector" },
      },
      {
        namespace: "sandgate",
        name: "gateway",
        labels: { "app.kubernetes.io/part-of": "sandgate", "app.kubernetes.io/name": "gateway" },
      },
      { namespace: "data", name: "mongodb", labels: { "app.kubernetes.io/name": "mongodb" } },
      { namespace: "data", name: "nats", labels: { "app.kubernetes.io/name": "nats" } },
      // As the overlay for a first hour has them, with policies of their own.
      { namespace: "sandgate", name: "own-mongodb", labels: { "app.kubernetes.io/name": "mongodb" } },
      { namespace: "sandgate", name: "own-nats", labels: { "app.kubernetes.io/name": "nats" } },
      { namespace: "monitoring", name: "prometheus" },
      // Beside the processes, and elsewhere with the labels of one.
      { namespace: "sandgate", name: "other" },
      { namespace: "elsewhere", name: "facade-elsewhere", labels: { "app.kubernetes.io/name": "facade" } },
    ];

    beforeAll(async () => {
      // The overlay pods, with the servers' policies.
      const objects = [
        ...(await buildManifests(cluster, "overlays/try")),
        ...(await buildManifests(cluster, "gateway")),
      ];
      const policies = objects.filter(({ kind, metadata }) => {
        return kind === "NetworkPolicy" && metadata.namespace !== deployed.sandboxes;
      });
      const namespaces = objects.filter(({ kind }) => kind === "Namespace");
      const others = ["data", "monitoring", "elsewhere"].map((name) => namespaceOf(name));
      await applyManifests(cluster, [...namespaces, ...others]);
      // Narrowed as cluster.yaml says; and what the overlay with a node's engine has besides, whose sandbox process is
      // on that node.
      const withEngine = await buildManifests(cluster, "overlays/docker-engine");
      policies.push(...withEngine.filter(({ metadata }) => metadata.name === "to-engine-node"));
      const addressesOf: Record<string, [string, string]> = {
        "to-api-server": ["0.0.0.0/0", `${server}/32`],
        "to-engine-node": ["192.0.2.10/32", `${own.nodeAddress}/32`],
      };
      await applyManifests(
        cluster,
        policies.map((policy) => {
          const [placeholder, address] = addressesOf[policy.metadata.name] ?? ["", ""];
          return placeholder ? JSON.parse(JSON.stringify(policy).replace(placeholder, address)) : policy;
        }),
      );
      const addresses = await startPods(pods.map((pod) => ({ ...pod, ports })));
      targets = pods.flatMap(({ name }) =>
        ports.map((port) => ({ name: `${name}:${port}`, address: addresses.get(name)?.[0] ?? "", port })),
      );
      await addOutsideAddress(network, server);
      const listening: [string, string, number][] = [
        ...[25, 443, 465, 587, 6443, 8085].map((port): [string, string, number] => ["outside", places.outside, port]),
        ...[443, 6443].map((port): [string, string, number] => ["private", places.tenNet, port]),
        ["metadata", places.linkLocal, 443],
        ["server", server, 6443],
      ];
      for (const [, address, port] of listening) {
        // The sandboxes' suite has some of them.
        if (address !== places.outside || port !== 25) await listen(address, port);
      }
      for (const port of [kubelet, engineNode]) {
        const [enter = "", ...args] = [...network.enter, "busybox", "httpd", "-f", "-p", `${own.nodeAddress}:${port}`];
        const onNode = startProcess(enter, args, { env: { PATH: process.env.PATH } });
        closing.defer(() => onNode.kill());
      }
      outside = [
        ...listening.map(([name, address, port]) => ({ name: `${name}:${port}`, address, port })),
        ...[kubelet, engineNode].map((port) => ({ name: `node:${port}`, address: own.nodeAddress, port })),
      ];
    });

    const nats = ["nats:4222", "own-nats:4222"];
    const store = ["mongodb:27017", "own-mongodb:27017", ...nats];
    /** Who reaches what; whatever isn't here is closed. Each pod reaches all ports of its own. */
    const open: Record<string, string[]> = {
      facade: [
        "identity:8081",
        "workspace:8082",
        "image-registry:8083",
        "sandbox:8084",
        "telemetry:8085",
        ...nats,
        `node:${engineNode}`,
      ],
      identity: [...store, "outside:25", "outside:465", "outside:587"],
      workspace: [...store, "identity:8081"],
      "image-registry": [...store, "workspace:8082", "outside:443"],
      sandbox: [...store, "workspace:8082", "image-registry:8083", "telemetry:8085", "outside:443", "server:6443"],
      telemetry: [...store, "workspace:8082", "sandbox:8084", `node:${engineNode}`],
      collector: ["telemetry:8085", `node:${kubelet}`],
      gateway: ["workspace:8082", "sandbox:8084", ...nats, `node:${engineNode}`],
    };
    const processes = Object.keys(open);
    /** Pods without policies of their own. */
    const everywhere = ["mongodb", "nats", "prometheus", "other", "facade-elsewhere"].flatMap((name) =>
      ports.map((port) => `${name}:${port}`),
    );

    test.concurrent.each(processes)("%s reaches what it needs and nothing else", async (name) => {
      const { namespace } = pods.find((pod) => pod.name === name) ?? { namespace: "" };
      const itself = ports.map((port) => `${name}:${port}`);
      await reaches({ namespace, name }, [...targets, ...outside], [...(open[name] ?? []), ...itself]);
    });

    test.concurrent("Prometheus reaches the metrics, and others only the public API and previews", async () => {
      const world = [...everywhere, ...outside.map(({ name }) => name), "facade:8080", "gateway:8080"];
      const metrics = processes.map((name) => `${name}:9464`);
      const all = [...targets, ...outside];
      await Promise.all([
        reaches({ namespace: "monitoring", name: "prometheus" }, all, [...world, ...metrics]),
        reaches({ namespace: "sandgate", name: "other" }, all, world),
        reaches({ namespace: "elsewhere", name: "facade-elsewhere" }, all, world),
        // From the server's pod its users are made, by its name.
        reaches({ namespace: "sandgate", name: "own-mongodb" }, all, [
          ...world,
          ...ports.map((port) => `own-mongodb:${port}`),
        ]),
        reaches({ namespace: "sandgate", name: "own-nats" }, all, [
          ...world,
          ...ports.map((port) => `own-nats:${port}`),
        ]),
      ]);
    });
  });
});
