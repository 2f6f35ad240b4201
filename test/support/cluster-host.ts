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
  controlGroup: string;
  kernel: Record<string, string>;
  /** Folders that were not there before. */
  madeFolders: string[];
}

export interface HostChanges {
  /** The bridge of the pods, which is the node's address too. */
  bridge: string;
  address: string;
  /** `10.x.y` of the pods' /24 network. */
  subnet: string;
  /** The parent of all control groups of pods: `/name`. */
  controlGroup: string;
  /** Removes and resets everything, also what pods left behind. Once all programs have ended, except for the shims of containers. */
  restore(): Promise<void>;
}

/** @param subnet `10.x.y` */
export async function prepareHost(folder: string, subnet: string): Promise<HostChanges> {
  const id = randomBytes(3).toString("hex");
  const state: HostState = {
    pid: process.pid,
    folder,
    bridge: `sgk${id}`,
    controlGroup: `sandgate-test-${id}`,
    kernel: Object.fromEntries(
      kernelSettings
        .filter((name) => existsSync(`/proc/sys/${name}`))
        .map((name) => [name, readFileSync(`/proc/sys/${name}`, "utf8")]),
    ),
    madeFolders: hostFolders.filter((path) => !existsSync(path)),
  };
  await writeFile(join(folder, stateFile), JSON.stringify(state));
  const address = `${subnet}.1`;
  await execute("ip", ["link", "add", state.bridge, "type", "bridge"]);
  await execute("ip", ["address", "add", `${address}/24`, "dev", state.bridge]);
  await execute("ip", ["link", "set", state.bridge, "up"]);
  for (const rule of forwardRules(state.bridge)) await iptables("-I", rule);
  for (const path of await controllers()) await mkdir(join(path, state.controlGroup));
  return {
    bridge: state.bridge,
    address,
    subnet,
    controlGroup: `/${state.controlGroup}`,
    restore: () => restoreHost(state),
  };
}

/** A Docker Engine beside it lets nothing through that it doesn't know. */
function forwardRules(bridge: string): string[][] {
  return [
    ["FORWARD", "-i", bridge, "-j", "ACCEPT"],
    ["FORWARD", "-o", bridge, "-j", "ACCEPT"],
  ];
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
  for (const rule of forwardRules(state.bridge)) await iptables("-D", rule).catch(() => {});
  await execute("ip", ["link", "del", state.bridge]).catch(() => {});
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

/** What CNI remembers of pods: `<network>-<id>-eth0`, and `cni-loopback-<id>-lo`. The network is named after the bridge. */
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
