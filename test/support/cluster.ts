import { execFile } from "node:child_process";
import { randomBytes, randomInt } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type { CallServer } from "./cluster-api.ts";
import { type ControlPlaneArgs, startControlPlane } from "./cluster-control-plane.ts";
import { type ClusterFiles, makeCertificates, writeClusterFiles } from "./cluster-files.ts";
import { cleanUpAfterDead, connectNodes, type HostChanges, prepareHost } from "./cluster-host.ts";
import { type ClusterProgram, createLauncher, type Launcher } from "./cluster-launcher.ts";
import { type NodeWithImages, type OwnNode, type PreparedNode, startContainerd, startNode } from "./cluster-node.ts";
import { findCniFolder, findEnforcer, findPrograms, type Programs } from "./cluster-programs.ts";
import { openOutsideCluster, probeOutsideCluster } from "./outside-cluster.ts";
import { findFreePort } from "./process.ts";
import { retry } from "./retry.ts";
import { createTempFolder } from "./temp-folder.ts";

export type { ClusterProgram } from "./cluster-launcher.ts";
export type { OwnNode } from "./cluster-node.ts";

const execute = promisify(execFile);

/**
 * A kubeconfig of a cluster that is there, and the `host[:port]` of a registry that its nodes pull from and we push to.
 */
const givenConfig = process.env.KUBECONFIG;
const givenRegistry = process.env.SANDGATE_TEST_KUBERNETES_REGISTRY;
const noRegistry = "SANDGATE_TEST_KUBERNETES_REGISTRY names no registry for the images of the cluster at KUBECONFIG";

const removalTimeoutMs = 120_000;
/** Of Kubernetes' default range. */
const firstNodePort = 30_000;

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
  /**
   * From now on nodes pull from this registry (`host:port`) by plain HTTP, as they do from those on loopback addresses.
   */
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
  /** One request as the admin. */
  call: CallServer;
  /** Writes a kubeconfig for another token, and answers its path. */
  writeKubeconfig(name: string, token: string): Promise<string>;
  stop(): Promise<void>;
}

export interface ClusterOptions extends ControlPlaneArgs {
  /** Gives the node a network of its own, and a program that enforces NetworkPolicies there (`probePolicies`). */
  enforcePolicies?: boolean;
  /** One unless given. Two need `enforcePolicies`. */
  nodes?: 1 | 2;
  /** More of the kubelet's configuration (KubeletConfiguration v1beta1). */
  kubelet?: Readonly<Record<string, unknown>>;
}

/**
 * Throws, saying what is missing, unless there is a cluster or all that one is started from. For
 * `requireServer("kubernetes", …)`.
 */
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

/**
 * The cluster at KUBECONFIG, or one that is started from programs: etcd, an API server, a controller manager, a
 * scheduler, and one node with a containerd and a kubelet of its own. It takes some seconds and much of the machine.
 * `stop` puts back what it changed.
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

/** What this machine has for a node. */
interface PreparedHost {
  name: string;
  folder: string;
  host: HostChanges;
  removeFolder(): Promise<void>;
}

async function startCluster(options: ClusterOptions): Promise<TestCluster> {
  const programs = await findPrograms();
  await cleanUpAfterDead();
  const hosts: [PreparedHost, ...PreparedHost[]] = [await prepareNodeHost("node1", options)];
  const launcher = createLauncher();
  const stop = async () => {
    await launcher.killAll();
    for (const { host, removeFolder } of hosts) {
      await host.restore();
      await removeFolder();
    }
  };
  try {
    if (options.nodes === 2) {
      const [first] = hosts;
      const second = await prepareNodeHost("node2", options);
      hosts.push(second);
      await connectNodes(first.host, second.host);
    }
    return await fillCluster({ programs, launcher, hosts, options, stop });
  } catch (error) {
    const output = launcher.describe();
    await stop();
    throw new Error(`the cluster did not start: ${error instanceof Error ? error.message : error}\n${output}`, {
      cause: error,
    });
  }
}

async function prepareNodeHost(name: string, { enforcePolicies }: ClusterOptions): Promise<PreparedHost> {
  const { path: folder, remove: removeFolder } = await createTempFolder();
  const subnet = chooseSubnet();
  const host = await prepareHost(folder, subnet, enforcePolicies ? chooseSubnet(subnet) : undefined);
  return { name, folder, host, removeFolder };
}

type Ports = Record<"etcd" | "peer" | "api" | "kubelet", number>;

async function choosePorts(): Promise<Ports> {
  const find = () => findFreePort("0.0.0.0");
  const ports = { etcd: await find(), peer: await find(), api: await find(), kubelet: await find() };
  // kube-router leaves a node's NodePorts open to all pods, also what listens there without being one.
  while (ports.kubelet >= firstNodePort) ports.kubelet = await find();
  return ports;
}

/** Writes the files of each node. Those after the first take its certificate authority and its folder of logs. */
async function writeNodes(
  hosts: readonly [PreparedHost, ...PreparedHost[]],
  o: { ports: Ports; adminToken: string; kubelet: Readonly<Record<string, unknown>> },
): Promise<[PreparedNode, ...PreparedNode[]]> {
  const [{ folder: firstFolder }] = hosts;
  const firstLogs = join(firstFolder, "pod-logs");
  const serverAddresses = hosts.map(({ host }) => host.serverAddress);
  const cniFolder = await findCniFolder();
  const write = async ({ name, folder, host }: PreparedHost): Promise<PreparedNode> => {
    const isFirst = folder === firstFolder;
    await makeCertificates(folder, {
      nodeName: name,
      nodeAddress: host.address,
      serverAddresses,
      ...(!isFirst && { authority: firstFolder }),
    });
    const files = await writeClusterFiles(folder, {
      api: o.ports.api,
      kubeletPort: o.ports.kubelet,
      nodeName: name,
      host,
      adminToken: o.adminToken,
      podLogs: isFirst ? undefined : firstLogs,
      cniFolder,
      kubelet: o.kubelet,
    });
    return { name, folder, host, files, mountLogsAt: isFirst ? undefined : firstLogs };
  };
  const [first, ...others] = hosts;
  const nodes: [PreparedNode, ...PreparedNode[]] = [await write(first)];
  for (const each of others) nodes.push(await write(each));
  return nodes;
}

async function fillCluster(o: {
  programs: Programs;
  launcher: Launcher;
  hosts: readonly [PreparedHost, ...PreparedHost[]];
  options: ClusterOptions;
  stop(): Promise<void>;
}): Promise<TestCluster> {
  const { programs, launcher, options } = o;
  const ports = await choosePorts();
  const adminToken = randomBytes(16).toString("hex");
  const nodes = await writeNodes(o.hosts, { ports, adminToken, kubelet: options.kubelet ?? {} });
  const [{ folder, host, files }] = nodes;
  const shared = { launcher, programs, folder, files, host, ports, adminToken };
  const controlPlane = await startControlPlane({ ...shared, args: options });
  const [withImages] = await Promise.all([
    Promise.all(nodes.map((node) => startContainerd(launcher, programs, node))),
    controlPlane.answers(),
  ]);
  const { call, server, etcdUrl, apiServer } = controlPlane;
  const controllers = controlPlane.startControllers();
  const [first, second] = await Promise.all(
    withImages.map((node) => startNode(launcher, programs, node, { call, kubeletPort: ports.kubelet })),
  );
  if (!first) throw new Error("unreachable: there is a node");
  return {
    kubeconfig: files.kubeconfig,
    server,
    own: {
      ...first,
      second,
      ...describeFiles(folder, files),
      ...createImageCommands(withImages),
      kubectlProgram: programs.kubectl,
      etcdUrl,
      apiServer,
      ...controllers,
    },
    registry: undefined,
    pullsFromLoopback: true,
    kubectl: kubectlOf(programs.kubectl, files.kubeconfig),
    call,
    writeKubeconfig: (name, token) => files.writeKubeconfig(name, token),
    stop: o.stop,
  };
}

function describeFiles(folder: string, files: ClusterFiles) {
  const certificate = (name: string) => ({ cert: join(folder, `${name}.crt`), key: join(folder, `${name}.key`) });
  return {
    folder,
    certificateAuthority: join(folder, "ca.crt"),
    certificates: { server: certificate("server"), node: certificate("node") },
    kubeletKubeconfig: files.kubeletKubeconfig,
    async configureKubelet(changes: Readonly<Record<string, unknown>>) {
      const config = JSON.parse(await readFile(files.kubelet, "utf8"));
      await writeFile(files.kubelet, JSON.stringify({ ...config, ...changes }));
    },
  };
}

/** What gives all nodes their images. */
function createImageCommands(nodes: readonly NodeWithImages[]) {
  return {
    async importImages(archive: string) {
      for (const node of nodes) await node.importImages(archive);
    },
    async tagImage(name: string, other: string) {
      for (const node of nodes) await node.tagImage(name, other);
    },
    async trustRegistry(registry: string) {
      for (const { registries } of nodes.map(({ node }) => node.files)) {
        await mkdir(join(registries, registry));
        // containerd 1.6 wants a host besides the server.
        const address = `"http://${registry}"`;
        await writeFile(join(registries, registry, "hosts.toml"), `server = ${address}\n[host.${address}]\n`);
      }
    },
  };
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

/** A network that no interface of this machine has, nor is the other one: `10.x.y`. */
function chooseSubnet(other?: string): string {
  const taken = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  for (;;) {
    const prefix = `10.${randomInt(200, 250)}.${randomInt(256)}`;
    if (prefix !== other && !taken.some(({ address }) => address.startsWith(`${prefix}.`))) return prefix;
  }
}
