import { execFile } from "node:child_process";
import { randomBytes, randomInt } from "node:crypto";
import { access, mkdir, readFile, writeFile } from "node:fs/promises";
import { request as httpsRequest } from "node:https";
import { networkInterfaces } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { type ClusterFiles, makeCertificates, writeClusterFiles } from "./cluster-files.ts";
import { cleanUpAfterDead, connectNodes, type HostChanges, type NodeNetwork, prepareHost } from "./cluster-host.ts";
import { imageArchive, makeImage } from "./oci-images.ts";
import { openOutsideCluster, probeOutsideCluster } from "./outside-cluster.ts";
import { findFreePort, type RunningProcess, startProcess } from "./process.ts";
import { retry } from "./retry.ts";
import { createTempFolder } from "./temp-folder.ts";

const execute = promisify(execFile);

/** A kubeconfig of a cluster that is there, and the `host[:port]` of a registry that its nodes pull from and we push to. */
const givenConfig = process.env.KUBECONFIG;
const givenRegistry = process.env.SANDGATE_TEST_KUBERNETES_REGISTRY;
const noRegistry = "SANDGATE_TEST_KUBERNETES_REGISTRY names no registry for the images of the cluster at KUBECONFIG";
/** A folder of Kubernetes' own programs, looked for on PATH as well. */
const givenFolder = process.env.SANDGATE_TEST_KUBERNETES;

const programFolders = [givenFolder ?? "", ...(process.env.PATH ?? "").split(delimiter), "/usr/sbin", "/sbin"].filter(
  Boolean,
);

const startTimeoutMs = 60_000;
const removalTimeoutMs = 120_000;
/** Of Kubernetes' default range. */
const firstNodePort = 30_000;

const programs = {
  etcd: "etcd",
  apiServer: "kube-apiserver",
  controllerManager: "kube-controller-manager",
  scheduler: "kube-scheduler",
  kubelet: "kubelet",
  kubectl: "kubectl",
  containerd: "containerd",
  ctr: "ctr",
} as const;
type Programs = Record<keyof typeof programs, string>;

/** One of the cluster's programs, for tests of what happens without it. */
export interface ClusterProgram {
  /** SIGKILL, as a crash would. */
  kill(): Promise<void>;
  /** Starts it again with the same arguments once it has ended. */
  start(): Promise<void>;
  output(): string;
}

/** A node of a cluster that was started here. */
export interface OwnNode {
  nodeName: string;
  /** The node's address: the pods' bridge, or that of its own network. */
  nodeAddress: string;
  /** With `enforcePolicies`. */
  network: NodeNetwork | undefined;
  /** `https://address:port` of the kubelet, which asks the API server who may do what. */
  kubeletUrl: string;
  /** The bridge of the pods. */
  bridge: string;
  /** What stands for /var/log/pods. */
  podLogsFolder: string;
  kubelet: ClusterProgram;
  containerd: ClusterProgram;
}

/** A cluster that was started here, and its first node. */
export interface OwnCluster extends OwnNode {
  /** Where its files are, and what else shall go with it. */
  folder: string;
  /** With `nodes: 2`. */
  second: OwnNode | undefined;
  /** The certificate authority of the API server and of the kubelet, a file. */
  certificateAuthority: string;
  /** The program, which may be another than that on PATH. */
  kubectlProgram: string;
  /** Gives the nodes the images in this file (an archive of OCI or Docker), which pods find under their names there. */
  importImages(archive: string): Promise<void>;
  /** Gives one of the nodes' images another name besides. */
  tagImage(name: string, other: string): Promise<void>;
  /** From now on nodes pull from this registry (`host:port`) by plain HTTP, as they do from those on loopback addresses. */
  trustRegistry(host: string): Promise<void>;
  /** Files of the certificates that the API server and the kubelet (as a client) have. */
  certificates: Record<"server" | "node", { cert: string; key: string }>;
  /** What the kubelet finds the API server by, a file. */
  kubeletKubeconfig: string;
  /** Its HTTP API, without credentials. */
  etcdUrl: string;
  /** Changes the kubelet's configuration, from its next start on. */
  configureKubelet(changes: Readonly<Record<string, unknown>>): Promise<void>;
  apiServer: ClusterProgram;
  scheduler: ClusterProgram;
  controllerManager: ClusterProgram;
}

/** A real Kubernetes cluster. */
export interface TestCluster {
  /** The path of a kubeconfig that may do everything. */
  kubeconfig: string;
  server: string;
  /** Undefined for a cluster from outside. */
  own: OwnCluster | undefined;
  /** A registry without users that nodes pull from, to push to: `host[:port]`. Undefined: start one on 127.0.0.1. */
  registry: string | undefined;
  /** Whether its nodes pull from registries on this machine's loopback address. */
  pullsFromLoopback: boolean;
  /** Runs kubectl as the admin and answers what it prints. Throws when it fails, with its errors. */
  kubectl(...args: string[]): Promise<string>;
  /** One request as the admin, with JSON both ways. Throws for any status from 400 on. */
  call(method: string, path: string, body?: unknown): Promise<unknown>;
  /** Writes a kubeconfig for another token, and answers its path. */
  writeKubeconfig(name: string, token: string): Promise<string>;
  stop(): Promise<void>;
}

export interface ClusterOptions {
  /** Gives the node a network of its own, and a program that enforces NetworkPolicies there (`probePolicies`). */
  enforcePolicies?: boolean;
  /** One unless given. Two need `enforcePolicies`. */
  nodes?: 1 | 2;
  /** More of the kubelet's configuration (KubeletConfiguration v1beta1). */
  kubelet?: Readonly<Record<string, unknown>>;
  /** More arguments of the controller manager, of the scheduler and of the API server. */
  controllerManagerArgs?: readonly string[];
  schedulerArgs?: readonly string[];
  apiServerArgs?: readonly string[];
}

/** Throws, saying what is missing, unless there is a cluster or all that one is started from. For `requireServer("kubernetes", …)`. */
export async function probeCluster(): Promise<void> {
  if (givenConfig) {
    if (!givenRegistry) throw new Error(noRegistry);
    await probeOutsideCluster(givenConfig);
    return;
  }
  await findPrograms();
  if (process.getuid?.() !== 0) throw new Error("a kubelet runs as root alone");
}

/** Throws, saying what is missing, unless a cluster can be started that enforces NetworkPolicies. */
export async function probePolicies(): Promise<void> {
  if (givenConfig) throw new Error("the cluster at KUBECONFIG is not looked at from its nodes, unset it");
  await probeCluster();
  await findEnforcer();
}

/** The path of kube-router. */
async function findEnforcer(): Promise<string> {
  const found = await findIn(programFolders, "kube-router");
  if (found === undefined) throw new Error("neither SANDGATE_TEST_KUBERNETES nor PATH has kube-router");
  for (const [name, debianPackage] of [
    ["ipset", "ipset"],
    ["nsenter", "util-linux"],
  ] as const) {
    if ((await findIn(programFolders, name)) === undefined) {
      throw new Error(`${name} was not found (Debian's package ${debianPackage})`);
    }
  }
  return found;
}

async function findPrograms(): Promise<Programs> {
  const folders = programFolders;
  const found: Partial<Programs> = {};
  const missing: string[] = [];
  for (const [key, name] of Object.entries(programs)) {
    const path = await findIn(folders, name);
    if (path === undefined) missing.push(name);
    else Object.assign(found, { [key]: path });
  }
  const packages = {
    ip: "iproute2",
    iptables: "iptables",
    openssl: "openssl",
    busybox: "busybox-static",
    runc: "runc",
  };
  for (const [name, debianPackage] of Object.entries(packages)) {
    if ((await findIn(folders, name)) === undefined) missing.push(`${name} (Debian's package ${debianPackage})`);
  }
  await findCniFolder().catch((error: Error) => missing.push(error.message));
  const { etcd, apiServer, controllerManager, scheduler, kubelet, kubectl, containerd, ctr } = found;
  if (
    missing.length > 0 ||
    !etcd ||
    !apiServer ||
    !controllerManager ||
    !scheduler ||
    !kubelet ||
    !kubectl ||
    !containerd ||
    !ctr
  ) {
    const hint = "KUBECONFIG is not set, and neither SANDGATE_TEST_KUBERNETES (a folder of programs) nor PATH has";
    throw new Error(`${hint}: ${missing.join(", ")}`);
  }
  return { etcd, apiServer, controllerManager, scheduler, kubelet, kubectl, containerd, ctr };
}

async function findIn(folders: readonly string[], name: string): Promise<string | undefined> {
  for (const folder of folders) {
    const path = join(folder, name);
    if (await exists(path)) return path;
  }
  return undefined;
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

async function findCniFolder(): Promise<string> {
  const plugin = await findIn(["/usr/lib/cni", "/opt/cni/bin"], "bridge");
  if (plugin === undefined) throw new Error("the CNI plugin bridge (Debian's package containernetworking-plugins)");
  return dirname(plugin);
}

/**
 * The cluster at KUBECONFIG, or one that is started from programs: etcd, an API server, a controller manager, a scheduler, and one node
 * with a containerd and a kubelet of its own. It takes some seconds and much of the machine. `stop` puts back what it changed.
 */
export async function openTestCluster(options: ClusterOptions = {}): Promise<TestCluster> {
  if (!givenConfig) return startCluster(options);
  if (!givenRegistry) throw new Error(noRegistry);
  return openOutsideCluster(givenConfig, givenRegistry);
}

function kubectlOf(program: string, kubeconfig: string) {
  return async (...args: string[]): Promise<string> => {
    const { stdout } = await execute(program, ["--kubeconfig", kubeconfig, ...args], { maxBuffer: 64 * 1024 * 1024 });
    return stdout;
  };
}

async function startCluster(options: ClusterOptions): Promise<TestCluster> {
  const found = await findPrograms();
  await cleanUpAfterDead();
  const nodes: [PreparedNode, ...PreparedNode[]] = [await prepareNode("node1", options)];
  const running: RunningProgram[] = [];
  const stop = async () => {
    // The kubelets first: they would start again what is killed.
    for (const program of running.toReversed()) await program.kill();
    for (const { host, removeFolder } of nodes) {
      await host.restore();
      await removeFolder();
    }
  };
  try {
    if (options.nodes === 2) {
      const [first] = nodes;
      const second = await prepareNode("node2", options);
      nodes.push(second);
      await connectNodes(first.host, second.host);
    }
    return await fillCluster(found, nodes, running, options, stop);
  } catch (error) {
    const said = running.map((program) => `${program.name}: ${program.output().slice(-1_500)}`).join("\n");
    await stop();
    throw new Error(`the cluster did not start: ${error instanceof Error ? error.message : error}\n${said}`, {
      cause: error,
    });
  }
}

/** What a node has before its programs start. */
interface PreparedNode {
  name: string;
  folder: string;
  host: HostChanges;
  removeFolder(): Promise<void>;
}

async function prepareNode(name: string, { enforcePolicies }: ClusterOptions): Promise<PreparedNode> {
  const { path: folder, remove: removeFolder } = await createTempFolder();
  const subnet = chooseSubnet();
  const host = await prepareHost(folder, subnet, enforcePolicies ? chooseSubnet(subnet) : undefined);
  return { name, folder, host, removeFolder };
}

interface RunningProgram extends ClusterProgram {
  name: string;
  pid(): number | undefined;
  hasEnded(): boolean;
}

async function fillCluster(
  found: Programs,
  nodes: readonly [PreparedNode, ...PreparedNode[]],
  running: RunningProgram[],
  options: ClusterOptions,
  stop: () => Promise<void>,
): Promise<TestCluster> {
  const [{ folder, host }] = nodes;
  const ports = { etcd: 0, peer: 0, api: 0, kubelet: 0 };
  for (const name of ["etcd", "peer", "api", "kubelet"] as const) ports[name] = await findFreePort("0.0.0.0");
  // kube-router leaves a node's NodePorts open to all pods, also what listens there without being one.
  while (ports.kubelet >= firstNodePort) ports.kubelet = await findFreePort("0.0.0.0");
  const adminToken = randomBytes(16).toString("hex");
  const serverAddresses = nodes.map((node) => node.host.serverAddress);
  const cniFolder = await findCniFolder();
  async function writeFiles(node: PreparedNode): Promise<ClusterFiles> {
    const authority = node.folder === folder ? {} : { authority: folder };
    const addresses = { nodeAddress: node.host.address, serverAddresses };
    await makeCertificates(node.folder, { nodeName: node.name, ...addresses, ...authority });
    return writeClusterFiles(node.folder, {
      api: ports.api,
      kubeletPort: ports.kubelet,
      nodeName: node.name,
      host: node.host,
      adminToken,
      podLogs: node.folder === folder ? undefined : firstPodLogs,
      cniFolder,
      kubelet: options.kubelet ?? {},
    });
  }
  const firstPodLogs = join(folder, "pod-logs");
  const files = await writeFiles(nodes[0]);
  const placed = [{ node: nodes[0], files }];
  for (const node of nodes.slice(1)) placed.push({ node, files: await writeFiles(node) });

  function start(name: string, path: string, args: readonly string[]): RunningProgram {
    let process: RunningProcess;
    const program: RunningProgram = {
      name,
      output: () => process.output(),
      pid: () => process.child.pid,
      hasEnded: () => process.child.exitCode !== null,
      kill: () => process.kill(),
      async start() {
        process = startProcess(path, args, { env: { PATH: `${globalThis.process.env.PATH}:/usr/sbin:/sbin` } });
      },
    };
    void program.start();
    running.push(program);
    return program;
  }

  async function until(what: string, check: () => Promise<boolean>): Promise<void> {
    const deadline = Date.now() + startTimeoutMs;
    while (!(await check().catch(() => false))) {
      const ended = running.find((program) => program.hasEnded());
      if (ended) throw new Error(`${ended.name} has ended`);
      if (Date.now() > deadline) throw new Error(`${what} took more than ${startTimeoutMs / 1000} s`);
      await delay(50);
    }
  }

  /** The node with its containerd, which has the pause image. */
  async function startContainerd({ node, files }: { node: PreparedNode; files: ClusterFiles }) {
    const args = ["--config", files.containerd];
    // On every node the pods' logs are at the same path, as a DaemonSet finds them.
    const script = `mount --bind ${files.podLogs} ${firstPodLogs}; exec ${found.containerd} "$@"`;
    const containerd =
      node.folder === folder
        ? start("containerd", found.containerd, args)
        : start("containerd", "unshare", ["--mount", "sh", "-euc", script, "containerd", ...args]);
    const images = (...given: string[]) =>
      execute(found.ctr, ["--address", files.containerdSocket, "--namespace", "k8s.io", "images", ...given]);
    const importImages = async (archive: string) => {
      await images("import", archive);
    };
    await until("containerd", () => exists(files.containerdSocket));
    const archive = join(node.folder, "pause.tar");
    await writeFile(archive, imageArchive(await makeImage({ command: ["sleep", "2147483647"] }), files.pauseImage));
    await until("containerd", () => importImages(archive).then(() => true));
    return { node, files, containerd, images, importImages };
  }
  start("etcd", found.etcd, [
    `--data-dir=${folder}/etcd`,
    `--listen-client-urls=http://127.0.0.1:${ports.etcd}`,
    `--advertise-client-urls=http://127.0.0.1:${ports.etcd}`,
    `--listen-peer-urls=http://127.0.0.1:${ports.peer}`,
    "--unsafe-no-fsync",
    "--log-level=error",
  ]);
  const apiServer = start("kube-apiserver", found.apiServer, [
    `--etcd-servers=http://127.0.0.1:${ports.etcd}`,
    "--bind-address=0.0.0.0",
    `--secure-port=${ports.api}`,
    `--advertise-address=${host.serverAddress}`,
    `--tls-cert-file=${folder}/server.crt`,
    `--tls-private-key-file=${folder}/server.key`,
    `--client-ca-file=${folder}/ca.crt`,
    `--token-auth-file=${files.tokens}`,
    "--service-account-issuer=https://kubernetes.default.svc",
    `--service-account-signing-key-file=${folder}/server.key`,
    `--service-account-key-file=${folder}/server.crt`,
    `--service-cluster-ip-range=${serviceRanges(host).join(",")}`,
    "--authorization-mode=Node,RBAC",
    "--enable-admission-plugins=NodeRestriction",
    "--kubelet-preferred-address-types=InternalIP",
    `--kubelet-certificate-authority=${folder}/ca.crt`,
    `--kubelet-client-certificate=${folder}/admin.crt`,
    `--kubelet-client-key=${folder}/admin.key`,
    "--allow-privileged=true",
    "--profiling=false",
    ...(options.apiServerArgs ?? []),
  ]);

  const server = `https://127.0.0.1:${ports.api}`;
  const ca = await readFile(join(folder, "ca.crt"));
  const call = (method: string, path: string, body?: unknown) =>
    callServer({ server, ca, token: adminToken, method, path, body });
  const [containerds] = await Promise.all([
    Promise.all(placed.map(startContainerd)),
    until("the API server", async () => (await call("GET", "/api/v1/namespaces/default")) !== undefined),
  ]);
  const controllerManager = start("kube-controller-manager", found.controllerManager, [
    `--kubeconfig=${files.kubeconfig}`,
    `--root-ca-file=${folder}/ca.crt`,
    `--service-account-private-key-file=${folder}/server.key`,
    "--leader-elect=false",
    "--secure-port=0",
    "--profiling=false",
    ...(options.controllerManagerArgs ?? []),
  ]);
  const scheduler = start("kube-scheduler", found.scheduler, [
    `--kubeconfig=${files.kubeconfig}`,
    "--leader-elect=false",
    "--secure-port=0",
    "--profiling=false",
    ...(options.schedulerArgs ?? []),
  ]);
  async function startNode({ node, files, containerd }: (typeof containerds)[number]): Promise<OwnNode> {
    const { name, host } = node;
    const startOnNode = (program: string, path: string, args: readonly string[]) => {
      const mounts = node.folder === folder ? [] : ["nsenter", `--mount=/proc/${containerd.pid()}/ns/mnt`];
      const [command = "", ...words] = [...mounts, ...(host.network?.enter ?? []), path, ...args];
      return start(program, command, words);
    };
    const kubelet = startOnNode("kubelet", found.kubelet, [
      `--config=${files.kubelet}`,
      `--kubeconfig=${files.kubeletKubeconfig}`,
      `--hostname-override=${name}`,
      `--node-ip=${[host.address, ...(host.network ? [host.network.nodeAddress6] : [])].join(",")}`,
      `--root-dir=${node.folder}/kubelet`,
      `--cert-dir=${node.folder}/kubelet`,
    ]);
    await until(name, async () => {
      const [ready] = conditionsOf(await call("GET", `/api/v1/nodes/${name}`)).filter(({ type }) => type === "Ready");
      await call("GET", "/api/v1/namespaces/default/serviceaccounts/default");
      return ready?.status === "True";
    });
    if (host.network) {
      const { enter, subnet6 } = host.network;
      // Of these networks it drops what comes from a pod that it doesn't know yet.
      const annotations = { "kube-router.io/pod-cidrs": `${host.subnet}.0/24,${subnet6}:/64` };
      await call("PATCH", `/api/v1/nodes/${name}`, { metadata: { annotations } });
      startOnNode("kube-router", await findEnforcer(), [
        `--kubeconfig=${files.nodeKubeconfig}`,
        `--hostname-override=${name}`,
        "--run-firewall=true",
        "--run-router=false",
        "--run-service-proxy=false",
        "--run-loadbalancer=false",
        "--enable-cni=false",
        "--enable-ipv6=true",
        "--netpol-default-deny=true",
        "--health-port=0",
        ...serviceRanges(host).map((range) => `--service-cluster-ip-range=${range}`),
      ]);
      for (const program of ["iptables", "ip6tables"]) {
        await until("kube-router", async () => {
          const [command = "", ...words] = [...enter, program, "--list-rules", "KUBE-ROUTER-FORWARD"];
          const env = { PATH: `${process.env.PATH}:/usr/sbin:/sbin` };
          return (await execute(command, words, { env })).stdout.includes("KUBE-NWPLCY-TAIL");
        });
      }
    }
    return {
      nodeName: name,
      nodeAddress: host.address,
      network: host.network,
      kubeletUrl: `https://${host.address}:${ports.kubelet}`,
      bridge: host.bridge,
      podLogsFolder: files.podLogs,
      kubelet,
      containerd,
    };
  }
  const [first, second] = await Promise.all(containerds.map(startNode));
  if (!first) throw new Error("unreachable: there is a node");

  const certificate = (name: string) => ({ cert: join(folder, `${name}.crt`), key: join(folder, `${name}.key`) });
  return {
    kubeconfig: files.kubeconfig,
    server,
    own: {
      ...first,
      second,
      folder,
      certificateAuthority: join(folder, "ca.crt"),
      kubectlProgram: found.kubectl,
      async importImages(archive) {
        for (const { importImages } of containerds) await importImages(archive);
      },
      async tagImage(name, other) {
        for (const { images } of containerds) await images("tag", name, other);
      },
      async trustRegistry(registry) {
        for (const { registries } of containerds.map((each) => each.files)) {
          await mkdir(join(registries, registry));
          // containerd 1.6 wants a host besides the server.
          const address = `"http://${registry}"`;
          await writeFile(join(registries, registry, "hosts.toml"), `server = ${address}\n[host.${address}]\n`);
        }
      },
      certificates: { server: certificate("server"), node: certificate("node") },
      kubeletKubeconfig: files.kubeletKubeconfig,
      etcdUrl: `http://127.0.0.1:${ports.etcd}`,
      async configureKubelet(changes) {
        const config = JSON.parse(await readFile(files.kubelet, "utf8"));
        await writeFile(files.kubelet, JSON.stringify({ ...config, ...changes }));
      },
      apiServer,
      scheduler,
      controllerManager,
    },
    registry: undefined,
    pullsFromLoopback: true,
    kubectl: kubectlOf(found.kubectl, files.kubeconfig),
    call,
    writeKubeconfig: (name, token) => files.writeKubeconfig(name, token),
    stop,
  };
}

function serviceRanges({ network }: HostChanges): string[] {
  return ["10.96.0.0/16", ...(network ? ["fd00:96::/112"] : [])];
}

/** Waits until the API server has no object there any more; after two minutes it throws. */
export async function untilGone({ call }: Pick<TestCluster, "call">, path: string): Promise<void> {
  await retry(
    async () => {
      const said = await call("GET", path).then(
        () => "it is still there",
        (error: Error) => error.message,
      );
      if (!said.includes(": 404 ")) throw new Error(`${path} is not gone after ${removalTimeoutMs / 1000} s: ${said}`);
    },
    { timeoutMs: removalTimeoutMs, intervalMs: 100 },
  );
}

function conditionsOf(node: unknown): { type: string; status: string }[] {
  return (node as { status?: { conditions?: { type: string; status: string }[] } }).status?.conditions ?? [];
}

function callServer(o: {
  server: string;
  ca: Buffer;
  token: string;
  method: string;
  path: string;
  body: unknown;
}): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const body = o.body === undefined ? undefined : JSON.stringify(o.body);
    const call = httpsRequest(new URL(o.path, o.server), {
      ca: o.ca,
      method: o.method,
      headers: {
        authorization: `Bearer ${o.token}`,
        "content-type": o.method === "PATCH" ? "application/strategic-merge-patch+json" : "application/json",
        // Without it a DELETE has no body.
        ...(body !== undefined && { "content-length": Buffer.byteLength(body) }),
      },
      timeout: 30_000,
      agent: false,
    });
    call.on("error", reject);
    call.on("timeout", () => call.destroy(new Error(`${o.method} ${o.path} took more than 30 s`)));
    call.on("response", (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
      });
      response.on("error", reject);
      response.on("end", () => {
        const status = response.statusCode ?? 0;
        if (status >= 400) reject(new Error(`${o.method} ${o.path}: ${status} ${text.slice(0, 500)}`));
        else resolve(text.startsWith("{") ? JSON.parse(text) : text);
      });
    });
    call.end(body);
  });
}

/** A network that no interface of this machine has, nor is the other one: `10.x.y`. */
function chooseSubnet(other?: string): string {
  const taken = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  for (;;) {
    const prefix = `10.${randomInt(200, 250)}.${randomInt(256)}`;
    if (prefix !== other && !taken.some(({ address }) => address.startsWith(`${prefix}.`))) return prefix;
  }
}
