// What a cluster that is started on this machine changes on it, and how all of that is put back.

import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { lstat, mkdir, readdir, readFile, rm, rmdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";

const execute = promisify(execFile);

const controlGroups = "/sys/fs/cgroup";
/** Set by the kubelet. */
const kernelSettings = [
  "vm/overcommit_memory",
  "kernel/panic",
  "kernel/panic_on_oops",
  "kernel/keys/root_maxkeys",
  "kernel/keys/root_maxbytes",
];
/** Made by the kubelet and by CNI, where no setting says otherwise. */
const hostFolders = [
  "/var/log/containers",
  "/var/lib/cni/results",
  "/var/lib/cni",
  "/run/containerd/s",
  "/run/containerd",
];
const stateFile = "host.json";

/** What is put back. Kept in the cluster's folder, so that another run can do it after a crash. */
interface HostState {
  pid: number;
  folder: string;
  bridge: string;
  /** The name of the node's network namespace, if it has one. */
  namespace?: string;
  controlGroup: string;
  kernel: Record<string, string>;
  /** Folders that were not there before. */
  madeFolders: string[];
}

/**
 * The network of a node of its own, which only a cable connects with this machine: the machine is the world outside.
 */
export interface NodeNetwork {
  /** This machine's end of the cable, which goes with the node. */
  hostInterface: string;
  /** The ends' addresses, of the machine and of the node. */
  hostAddress: string;
  hostAddress6: string;
  nodeAddress6: string;
  /** `fd…:` of the pods' /64 network. */
  subnet6: string;
  /** The command that runs another one there. */
  enter: readonly string[];
}

export interface HostChanges {
  /** The bridge of the pods. */
  bridge: string;
  /** The node's: the bridge's, or that of its end of the cable. */
  address: string;
  /** Where the node and its pods find the API server. */
  serverAddress: string;
  /** `10.x.y` of the pods' /24 network. */
  subnet: string;
  /** Undefined: the node is on this machine's network. */
  network: NodeNetwork | undefined;
  /** The parent of all control groups of pods: `/name`. */
  controlGroup: string;
  /**
   * Removes and resets everything, also what pods left behind. Once all programs have ended, except for the shims of
   * containers.
   */
  restore(): Promise<void>;
}

/** The networks of the cluster's services, as its nodes have them. */
export function serviceRanges({ network }: Pick<HostChanges, "network">): string[] {
  return ["10.96.0.0/16", ...(network ? ["fd00:96::/112"] : [])];
}

/**
 * @param subnet `10.x.y`
 * @param cable `10.x.y` of the cable to a node with a network of its own; without one the node is on this machine's
 */
export async function prepareHost(folder: string, subnet: string, cable?: string): Promise<HostChanges> {
  const id = randomBytes(3).toString("hex");
  const state: HostState = {
    pid: process.pid,
    folder,
    bridge: `sgk${id}`,
    ...(cable !== undefined && { namespace: `sgk${id}` }),
    controlGroup: `sandgate-test-${id}`,
    kernel: Object.fromEntries(
      kernelSettings
        .filter((name) => existsSync(`/proc/sys/${name}`))
        .map((name) => [name, readFileSync(`/proc/sys/${name}`, "utf8")]),
    ),
    madeFolders: hostFolders.filter((path) => !existsSync(path)),
  };
  await writeFile(join(folder, stateFile), JSON.stringify(state));
  const network = cable === undefined ? undefined : await makeNetwork(state.bridge, subnet, cable);
  if (!network) {
    await execute("ip", ["link", "add", state.bridge, "type", "bridge"]);
    await execute("ip", ["address", "add", `${subnet}.1/24`, "dev", state.bridge]);
    await execute("ip", ["link", "set", state.bridge, "up"]);
    for (const rule of forwardRules(state.bridge)) await iptables("-I", rule);
  }
  for (const path of await controllers()) await mkdir(join(path, state.controlGroup));
  await weighPods(state.controlGroup);
  return {
    bridge: state.bridge,
    address: network ? `${cable}.2` : `${subnet}.1`,
    serverAddress: network ? network.hostAddress : `${subnet}.1`,
    subnet,
    network,
    controlGroup: `/${state.controlGroup}`,
    restore: () => restoreHost(state),
  };
}

/**
 * All pods together count as eight processes where the processor is short, and not as the one that a control group is.
 */
async function weighPods(controlGroup: string): Promise<void> {
  for (const path of await controllers()) {
    for (const [name, weight] of [
      ["cpu.shares", "8192"],
      ["cpu.weight", "800"],
    ] as const) {
      const file = join(path, controlGroup, name);
      if (existsSync(file)) await writeFile(file, weight);
    }
  }
}

/**
 * A network namespace with the pods' bridge, routed through a cable. The bridge's packets pass the namespace's
 * iptables.
 */
async function makeNetwork(name: string, subnet: string, cable: string): Promise<NodeNetwork> {
  const prefix6 = `fd${randomBytes(5).toString("hex")}`.replace(/(....)(....)(....)/, "$1:$2:$3");
  const network: NodeNetwork = {
    hostInterface: `${name}-h`,
    hostAddress: `${cable}.1`,
    hostAddress6: `${prefix6}:1::1`,
    nodeAddress6: `${prefix6}:1::2`,
    subnet6: `${prefix6}:2:`,
    enter: ["nsenter", `--net=/run/netns/${name}`],
  };
  const ip = (...args: string[]) => execute("ip", args);
  const [enter = "", ...args] = network.enter;
  const inside = (...command: string[]) => execute(enter, [...args, ...command]);
  await ip("netns", "add", name);
  await ip("link", "add", network.hostInterface, "type", "veth", "peer", "name", "uplink", "netns", name);
  await ip("address", "add", `${network.hostAddress}/24`, "dev", network.hostInterface);
  await ip("address", "add", `${network.hostAddress6}/64`, "dev", network.hostInterface, "nodad");
  await ip("link", "set", network.hostInterface, "up");
  for (const link of ["lo", "uplink"]) await inside("ip", "link", "set", link, "up");
  await inside("ip", "address", "add", `${cable}.2/24`, "dev", "uplink");
  await inside("ip", "address", "add", `${network.nodeAddress6}/64`, "dev", "uplink", "nodad");
  await inside("ip", "link", "add", name, "type", "bridge");
  await inside("ip", "address", "add", `${subnet}.1/24`, "dev", name);
  await inside("ip", "address", "add", `${network.subnet6}:1/64`, "dev", name, "nodad");
  await inside("ip", "link", "set", name, "up");
  await inside("ip", "route", "add", "default", "via", network.hostAddress);
  await inside("ip", "route", "add", "default", "via", network.hostAddress6);
  const settings = ["ipv4/ip_forward", "ipv6/conf/all/forwarding", "bridge/bridge-nf-call-iptables"];
  for (const setting of [...settings, "bridge/bridge-nf-call-ip6tables"]) {
    await inside("sh", "-c", `echo 1 >/proc/sys/net/${setting}`);
  }
  await ip("route", "add", `${subnet}.0/24`, "via", `${cable}.2`);
  await ip("route", "add", `${network.subnet6}:/64`, "via", network.nodeAddress6);
  return network;
}

/** A cable between two nodes with networks of their own, and on both the routes to the other one and its pods. */
export async function connectNodes(first: HostChanges, second: HostChanges): Promise<void> {
  if (!first.network || !second.network) throw new Error("nodes on this machine's own network are not connected");
  const namespaceOf = (node: HostChanges) => node.bridge;
  const cable = ["link", "add", "cable", "netns", namespaceOf(first)];
  await execute("ip", [...cable, "type", "veth", "peer", "name", "cable", "netns", namespaceOf(second)]);
  for (const [from, to] of [
    [first, second],
    [second, first],
  ] as const) {
    const [enter = "", ...args] = from.network?.enter ?? [];
    const ip = (...words: string[]) => execute(enter, [...args, "ip", ...words]);
    const [address6, otherAddress6] = [from.network?.nodeAddress6 ?? "", to.network?.nodeAddress6 ?? ""];
    await ip("address", "add", `${address6}/128`, "dev", "cable", "nodad");
    await ip("link", "set", "cable", "up");
    await ip("route", "add", `${to.address}/32`, "dev", "cable", "src", from.address);
    await ip("route", "add", `${to.subnet}.0/24`, "via", to.address, "dev", "cable", "src", from.address);
    // Answers to this machine come back through the node that it asked (kube-proxy's MASQUERADE of NodePorts).
    const source = ["-s", from.network?.hostAddress ?? "", "-j", "SNAT", "--to-source", from.address];
    await execute(
      enter,
      [...args, "iptables", "-w", "10", "-t", "nat", "-A", "POSTROUTING", "-o", "cable", ...source],
      {
        env: { PATH: `${process.env.PATH}:/usr/sbin:/sbin` },
      },
    );
    await ip("route", "add", `${otherAddress6}/128`, "dev", "cable", "src", address6);
    await ip("route", "add", `${to.network?.subnet6}:/64`, "via", otherAddress6, "dev", "cable", "src", address6);
  }
}

/** A Docker Engine beside it lets nothing through that it doesn't know. */
function forwardRules(bridge: string): string[][] {
  return [
    ["FORWARD", "-i", bridge, "-j", "ACCEPT"],
    ["FORWARD", "-o", bridge, "-j", "ACCEPT"],
  ];
}

/** The chain of a cluster's Services (`cluster-services.ts`) in the table nat. */
export function servicesChain(bridge: string): string {
  return `${bridge}-services`;
}

/** Removes the chain and the jumps to it, if they are there. */
async function removeServices(bridge: string): Promise<void> {
  const env = { PATH: `${process.env.PATH}:/usr/sbin:/sbin` };
  const nat = (...args: string[]) => execute("iptables", ["-w", "10", "-t", "nat", ...args], { env });
  const chain = servicesChain(bridge);
  const { stdout } = await nat("-S");
  for (const rule of stdout.split("\n").filter((line) => line.endsWith(` -j ${chain}`))) {
    await nat("-D", ...rule.split(" ").slice(1));
  }
  if (!stdout.includes(`-N ${chain}\n`)) return;
  await nat("-F", chain);
  await nat("-X", chain);
}

async function iptables(action: "-I" | "-D", rule: readonly string[]): Promise<void> {
  await execute("iptables", ["-w", "10", action, ...rule], { env: { PATH: `${process.env.PATH}:/usr/sbin:/sbin` } });
}

/** The roots of the control group hierarchies, of version 1 or 2. */
async function controllers(): Promise<string[]> {
  if (existsSync(join(controlGroups, "cgroup.controllers"))) return [controlGroups];
  const entries = await readdir(controlGroups, { withFileTypes: true });
  return entries.filter((entry) => entry.isDirectory()).map(({ name }) => join(controlGroups, name));
}

async function restoreHost(state: HostState): Promise<void> {
  const { folder } = state;
  await killContainers(state);
  // Those within others come last.
  for (const path of (await mountsBelow(folder)).toReversed())
    await execute("umount", ["--lazy", path]).catch(() => {});
  if (state.namespace === undefined) {
    for (const rule of forwardRules(state.bridge)) await iptables("-D", rule).catch(() => {});
    await removeServices(state.bridge);
    await execute("ip", ["link", "del", state.bridge]).catch(() => {});
  } else {
    // With this end of the cable go the other end and its routes; the namespace itself and its rules, with its last
    // process.
    await execute("ip", ["link", "del", `${state.bridge}-h`]).catch(() => {});
    await execute("ip", ["netns", "del", state.namespace]).catch(() => {});
  }
  for (const path of await controllers()) await removeControlGroup(join(path, state.controlGroup));
  for (const [name, value] of Object.entries(state.kernel)) await writeFile(`/proc/sys/${name}`, value).catch(() => {});
  for (const path of await linksInto("/var/log/containers", folder)) await rm(path, { force: true });
  await removeCniResults(state.bridge);
  // Only those that nobody else uses meanwhile.
  for (const path of state.madeFolders) await rmdir(path).catch(() => {});
}

/** Kills what runs in the control groups of pods, and the shims of this containerd, which outlive it. */
async function killContainers({ folder, controlGroup }: HostState): Promise<void> {
  for (let round = 0; round < 100; round++) {
    const pids = new Set(await findShims(folder));
    for (const path of await controllers())
      for (const pid of await processesIn(join(path, controlGroup))) pids.add(pid);
    if (pids.size === 0) return;
    for (const pid of pids) {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // It has ended meanwhile.
      }
    }
    await delay(50);
  }
  throw new Error(`containers of ${folder} could not be ended`);
}

async function findShims(folder: string): Promise<number[]> {
  const found: number[] = [];
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const commandLine = await readFile(`/proc/${name}/cmdline`, "utf8").catch(() => "");
    if (commandLine.includes("containerd-shim") && commandLine.includes(`${folder}/`)) found.push(Number(name));
  }
  return found;
}

async function processesIn(group: string): Promise<number[]> {
  const text = await readFile(join(group, "cgroup.procs"), "utf8").catch(() => "");
  const below = await Promise.all((await foldersIn(group)).map(processesIn));
  return [...text.split("\n").filter(Boolean).map(Number), ...below.flat()];
}

async function foldersIn(path: string): Promise<string[]> {
  const entries = await readdir(path, { withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isDirectory()).map(({ name }) => join(path, name));
}

async function removeControlGroup(path: string): Promise<void> {
  for (const below of await foldersIn(path)) await removeControlGroup(below);
  // One whose last process has just ended may still be busy.
  for (let attempt = 0; attempt < 20; attempt++) {
    const isGone = await rmdir(path).then(
      () => true,
      (error: NodeJS.ErrnoException) => error.code === "ENOENT",
    );
    if (isGone) return;
    await delay(50);
  }
}

/**
 * What CNI remembers of pods: `<network>-<id>-eth0`, and `cni-loopback-<id>-lo`. The network is named after the bridge.
 */
async function removeCniResults(network: string): Promise<void> {
  const folder = "/var/lib/cni/results";
  const names = await readdir(folder).catch(() => []);
  const ids = names.flatMap((name) => new RegExp(`^${network}-(\\w+)-`).exec(name)?.[1] ?? []);
  for (const name of names) if (ids.some((id) => name.includes(id))) await rm(join(folder, name), { force: true });
}

async function mountsBelow(folder: string): Promise<string[]> {
  const text = await readFile("/proc/self/mounts", "utf8");
  const paths = text.split("\n").map((line) => line.split(" ")[1] ?? "");
  return paths.filter((path) => path.startsWith(`${folder}/`));
}

/** Symbolic links in a folder that lead into another. */
async function linksInto(from: string, folder: string): Promise<string[]> {
  const names = await readdir(from).catch(() => []);
  const paths: string[] = [];
  for (const name of names) {
    const path = join(from, name);
    const { stdout: target } = await execute("readlink", [path]).catch(() => ({ stdout: "" }));
    if (target.startsWith(`${folder}/`)) paths.push(path);
  }
  return paths;
}

/** Does it for clusters whose process was killed. */
export async function cleanUpAfterDead(): Promise<void> {
  for (const name of await readdir(tmpdir())) {
    if (!name.startsWith("sandgate-")) continue;
    const path = join(tmpdir(), name, stateFile);
    if (!(await lstat(path).catch(() => undefined))?.isFile()) continue;
    const state: HostState = JSON.parse(await readFile(path, "utf8"));
    if (isAlive(state.pid)) continue;
    await restoreHost(state);
    await rm(state.folder, { recursive: true, force: true });
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
