import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { MetricRow } from "../domain/rows.ts";

/** Where this process sees processes and its own mounts. */
const procFolder = "/proc";

/** A container's counters, as the kernel keeps them (cgroups(7)); the engine's figures come from the same files. */
export interface Cgroup {
  version: 1 | 2;
  /** The counters now; undefined once the container has ended. Three short reads that don't wait for a disk. */
  read(): Omit<MetricRow, "timeNs"> | undefined;
}

/** A hierarchy of cgroups that is mounted here. */
interface Hierarchy {
  /** "" for version 2. */
  controllers: readonly string[];
  /** The cgroup that is seen at `mountPoint`, by the names that /proc/<pid>/cgroup has here. */
  root: string;
  mountPoint: string;
}

/**
 * Finds the cgroup of a container by its process. Throws with the reason when it can't be read from here: the engine is
 * on another host, or this process sees other processes or cgroups than the engine's host does.
 */
export type CgroupFinder = (o: { containerId: string; pid: number }) => Promise<Cgroup>;

/**
 * Creates a finder that reads the list of mounts once, and again for a cgroup that isn't found by it. Each container
 * adds mounts, so reading the list for each container would take quadratic time. `proc` is /proc unless given.
 */
export function createCgroupFinder({ proc = procFolder }: { proc?: string | undefined } = {}): CgroupFinder {
  let known: Promise<Hierarchy[]> | undefined;
  const readMounts = async () => parseMounts(await readFile(join(proc, "self/mountinfo"), "utf8"));
  return async (o) => {
    const earlier = known;
    known ??= readMounts();
    try {
      return await findIn(await known, { ...o, proc });
    } catch (error) {
      known = undefined;
      if (!earlier) throw error;
    }
    known = readMounts();
    return findIn(await known, { ...o, proc });
  };
}

async function findIn(
  hierarchies: readonly Hierarchy[],
  { containerId, pid, proc }: { containerId: string; pid: number; proc: string },
): Promise<Cgroup> {
  const memberships = parseMemberships(await readFile(join(proc, String(pid), "cgroup"), "utf8"));
  const folderOf = (controller: string) => {
    const path = memberships.get(controller);
    // An unknown process of that number here, or one in a namespace of cgroups that isn't seen from here.
    if (path === undefined || !path.includes(containerId)) return undefined;
    return locate(hierarchies, controller, cgroupOf(path, containerId));
  };
  const memory = folderOf("memory");
  const cpu = folderOf("cpuacct");
  const unified = folderOf("");
  const cgroup = memory !== undefined && cpu !== undefined ? cgroupV1(memory, cpu) : unified && cgroupV2(unified);
  if (!cgroup) throw new Error("the container's process is not in a cgroup that is seen from here");
  // A file may be missing or refused.
  if (!cgroup.read()) throw new Error("the container's cgroup is gone or not readable");
  return cgroup;
}

function cgroupV1(memory: string, cpu: string): Cgroup {
  return {
    version: 1,
    read: () =>
      unlessGone(() => {
        const usage = Number(readText(memory, "memory.usage_in_bytes"));
        return {
          cpuSeconds: Number(readText(cpu, "cpuacct.usage")) / 1e9,
          memoryBytes: workingSet(usage, fieldOf(readText(memory, "memory.stat"), "total_inactive_file")),
        };
      }),
  };
}

function cgroupV2(folder: string): Cgroup {
  return {
    version: 2,
    read: () =>
      unlessGone(() => {
        const usage = Number(readText(folder, "memory.current"));
        return {
          cpuSeconds: fieldOf(readText(folder, "cpu.stat"), "usage_usec") / 1e6,
          memoryBytes: workingSet(usage, fieldOf(readText(folder, "memory.stat"), "inactive_file")),
        };
      }),
  };
}

/** As the kubelet computes it: usage without the file pages that the kernel would reclaim first. */
export function workingSet(usage: number, inactiveFile: number): number {
  return Math.max(0, usage - inactiveFile);
}

/** Synchronous: the kernel answers from memory in some microseconds, fewer than a thread takes to be asked. */
function readText(folder: string, file: string): string {
  return readFileSync(join(folder, file), "latin1");
}

function fieldOf(text: string, name: string): number {
  const value = new RegExp(`^${name} (\\d+)$`, "m").exec(text)?.[1];
  if (value === undefined) throw new Error(`a cgroup has no ${name}`);
  return Number(value);
}

/** ENODEV: the cgroup was removed between opening and reading a file. */
function unlessGone<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ENODEV")) {
      return undefined;
    }
    throw error;
  }
}

/** The container's own cgroup, above those that its processes may have created below it. */
function cgroupOf(path: string, containerId: string): string {
  const end = path.indexOf("/", path.indexOf(containerId));
  return end === -1 ? path : path.slice(0, end);
}

/** Where a cgroup is in the file system; undefined when no mount shows it. */
function locate(hierarchies: readonly Hierarchy[], controller: string, path: string): string | undefined {
  for (const { controllers, root, mountPoint } of hierarchies) {
    if (!controllers.includes(controller)) continue;
    const below = root === "/" ? path : path.startsWith(`${root}/`) ? path.slice(root.length) : undefined;
    if (below !== undefined && !below.split("/").includes("..")) return join(mountPoint, below);
  }
  return undefined;
}

/**
 * The cgroup of a process by controller, "" for version 2: lines like `4:cpu,cpuacct:/docker/1f0a…` and
 * `0::/docker/1f0a…`.
 */
function parseMemberships(text: string): Map<string, string> {
  const paths = new Map<string, string>();
  for (const line of text.split("\n")) {
    const [, controllers, path] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    if (controllers === undefined || path === undefined) continue;
    for (const controller of controllers.split(",")) paths.set(controller, path);
  }
  return paths;
}

/** The cgroup mounts of proc_pid_mountinfo(5): `36 35 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory`. */
function parseMounts(text: string): Hierarchy[] {
  return text.split("\n").flatMap((line) => {
    const [mount = "", fileSystem = ""] = line.split(" - ");
    const [, , , root, mountPoint] = mount.split(" ");
    const [type, , options = ""] = fileSystem.split(" ");
    if (root === undefined || mountPoint === undefined) return [];
    if (type === "cgroup2") return [{ controllers: [""], root, mountPoint }];
    return type === "cgroup" ? [{ controllers: options.split(","), root, mountPoint }] : [];
  });
}
