// Services of a test cluster, whose programs include neither kube-proxy nor a DNS.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import type { OwnCluster, OwnNode, TestCluster } from "./cluster.ts";
import { servicesChain } from "./cluster-host.ts";

const execute = promisify(execFile);
const env = { PATH: `${process.env.PATH}:/usr/sbin:/sbin` };

const dnsAddress = "10.96.0.10";
const refreshMs = 250;

/** A kubelet's configuration of the DNS, for `openTestCluster({ kubelet })`. */
export const dnsOfKubelet = { clusterDNS: [dnsAddress], clusterDomain: "cluster.local" };

/** Throws unless rules of Services also hold between pods of one bridge. */
export async function probeServices(): Promise<void> {
  const name = "/proc/sys/net/bridge/bridge-nf-call-iptables";
  const value = await readFile(name, "utf8").catch(() => "");
  if (value.trim() !== "1")
    throw new Error(`${name} is not 1, so answers of a Service's pods would come from elsewhere`);
}

/** On all nodes; see `serveOn`. */
export async function startServices(cluster: TestCluster, own: OwnCluster): Promise<AsyncDisposable> {
  await using starting = new AsyncDisposableStack();
  for (const node of own.second ? [own, own.second] : [own]) starting.use(await serveOn(node, cluster));
  return starting.move();
}

/**
 * From now on pods reach Services by their addresses, and all reach NodePorts at the node's address. For this it keeps
 * the rules that kube-proxy keeps (its mode iptables), in a chain of this cluster's own, since several on one machine
 * use the same addresses: TCP and UDP of version 4, to a random one of the ready endpoints. What kube-proxy has besides
 * isn't here: affinity, traffic policies, load balancers, and the refusal of a Service without endpoints, which here
 * gives no answer.
 */
async function serveOn(own: OwnNode, cluster: TestCluster): Promise<AsyncDisposable> {
  const chain = servicesChain(own.bridge);
  const jumps = [
    ["PREROUTING", "-i", own.bridge, "-j", chain],
    ["PREROUTING", "-d", own.nodeAddress, "-j", chain],
    ["OUTPUT", "-d", own.nodeAddress, "-j", chain],
  ];
  let applied = "";
  const [command = "", ...words] = [...(own.network?.enter ?? []), "iptables"];
  const nat = (...args: string[]) => execute(command, [...words, "-w", "10", "-t", "nat", ...args], { env });
  const refresh = async () => {
    const rules = await describeRules(cluster, own, chain);
    if (rules === applied) return;
    await restoreRules(own, rules);
    applied = rules;
  };
  await refresh();
  for (const jump of jumps) await nat("-I", ...jump);
  const stopped = new AbortController();
  const work = (async () => {
    while (!stopped.signal.aborted) {
      await delay(refreshMs, undefined, { signal: stopped.signal }).catch(() => {});
      // The API server may be away; the rules stay as they are.
      if (!stopped.signal.aborted) await refresh().catch(() => {});
    }
  })();
  return {
    async [Symbol.asyncDispose]() {
      stopped.abort();
      await work;
      // The cluster removes the chain.
    },
  };
}

interface Service {
  metadata: { name: string; namespace: string };
  spec: {
    clusterIP?: string;
    ports?: { name?: string; port: number; protocol: string; nodePort?: number }[];
  };
}
interface Slice {
  metadata: { namespace: string; labels?: Record<string, string> };
  addressType: string;
  endpoints: { addresses: string[]; conditions: { ready?: boolean } }[] | null;
  ports: { name?: string; port: number }[] | null;
}

/** The chain's content for iptables-restore, the same for the same endpoints. */
async function describeRules(cluster: TestCluster, own: OwnNode, chain: string): Promise<string> {
  const [services, slices] = await Promise.all([
    list<Service>(cluster, "/api/v1/services"),
    list<Slice>(cluster, "/apis/discovery.k8s.io/v1/endpointslices"),
  ]);
  const endpointsOf = ({ metadata: { name, namespace } }: Service, port: string) =>
    slices
      .filter(
        ({ metadata, addressType }) =>
          addressType === "IPv4" &&
          metadata.namespace === namespace &&
          metadata.labels?.["kubernetes.io/service-name"] === name,
      )
      .flatMap(({ endpoints, ports }) => {
        const target = ports?.find((each) => (each.name ?? "") === port)?.port;
        if (target === undefined) return [];
        const ready = (endpoints ?? []).filter(({ conditions }) => conditions.ready !== false);
        return ready.flatMap(({ addresses }) => addresses.map((address) => `${address}:${target}`));
      })
      .toSorted();
  const lines = services.flatMap((service) => {
    const { clusterIP, ports } = service.spec;
    if (!clusterIP || clusterIP === "None") return [];
    return (ports ?? []).flatMap(({ name, port, protocol, nodePort }) => {
      const endpoints = endpointsOf(service, name ?? "");
      const places = [[clusterIP, port], ...(nodePort ? [[own.nodeAddress, nodePort]] : [])];
      return places.flatMap(([address, at]) =>
        endpoints.map((endpoint, index) => {
          // The first of three is taken by one in three, the second by one in two of the others.
          const share = (1 / (endpoints.length - index)).toFixed(10);
          const chance = index + 1 < endpoints.length ? `-m statistic --mode random --probability ${share} ` : "";
          const match = `-d ${address}/32 -p ${protocol.toLowerCase()} --dport ${at}`;
          return `-A ${chain} ${match} ${chance}-j DNAT --to-destination ${endpoint}`;
        }),
      );
    });
  });
  return ["*nat", `:${chain} - [0:0]`, ...lines, "COMMIT", ""].join("\n");
}

async function list<T>(cluster: TestCluster, path: string): Promise<T[]> {
  const { items } = (await cluster.call("GET", path)) as { items: T[] };
  return items;
}

/** In one step: the chain's old rules hold until then. */
async function restoreRules({ network }: OwnNode, rules: string): Promise<void> {
  const [command = "", ...words] = [...(network?.enter ?? []), "iptables-restore", "-w", "10", "--noflush"];
  const restore = spawn(command, words, { env, stdio: ["pipe", "ignore", "pipe"] });
  let said = "";
  restore.stderr.setEncoding("utf8").on("data", (text: string) => {
    said += text;
  });
  restore.stdin.end(rules);
  const [code] = await once(restore, "close");
  if (code !== 0) throw new Error(`iptables-restore: ${said}\n${rules}`);
}

/**
 * The objects of a DNS for the Services, labelled as the DNS of most clusters is, so that network policies which let
 * pods ask that one hold here as well. Its pod runs the program `cluster-dns.ts` in an image with Node.js at
 * /usr/local/bin.
 */
export async function describeDns(image: string): Promise<object[]> {
  const named = { name: "kube-dns", namespace: "kube-system" };
  const labels = { "k8s-app": "kube-dns" };
  const program = await readFile(join(import.meta.dirname, "cluster-dns.ts"), "utf8");
  return [
    { apiVersion: "v1", kind: "ServiceAccount", metadata: named },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRole",
      metadata: { name: "kube-dns" },
      rules: [
        { apiGroups: [""], resources: ["services"], verbs: ["list"] },
        { apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], verbs: ["list"] },
      ],
    },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRoleBinding",
      metadata: { name: "kube-dns" },
      subjects: [{ kind: "ServiceAccount", ...named }],
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "kube-dns" },
    },
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: named,
      spec: { clusterIP: dnsAddress, selector: labels, ports: [{ name: "dns", port: 53, protocol: "UDP" }] },
    },
    { apiVersion: "v1", kind: "ConfigMap", metadata: named, data: { "cluster-dns.ts": program } },
    {
      apiVersion: "apps/v1",
      kind: "Deployment",
      metadata: named,
      spec: {
        replicas: 1,
        selector: { matchLabels: labels },
        template: {
          metadata: { labels },
          spec: {
            serviceAccountName: "kube-dns",
            dnsPolicy: "Default",
            containers: [
              {
                name: "dns",
                image,
                command: ["/usr/local/bin/node", "/dns/cluster-dns.ts"],
                securityContext: { runAsUser: 0 },
                ports: [{ containerPort: 53, protocol: "UDP" }],
                volumeMounts: [{ name: "program", mountPath: "/dns" }],
              },
            ],
            volumes: [{ name: "program", configMap: { name: "kube-dns" } }],
          },
        },
      },
    },
  ];
}
