import { mkdir, readdir, readFile, rmdir, writeFile } from "node:fs/promises";
import { totalmem } from "node:os";
import { dirname, join } from "node:path";
import { messageOf } from "@sandgate/kit/base/domain-error";
import { createStateLog, type Logger } from "@sandgate/kit/base/logging";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { exists } from "./files.ts";
import type { HostNames } from "./names.ts";

/** What all sandboxes together may take of the engine's host. */
export interface TotalLimits {
  /** Processes and threads. Unless set, three quarters of what the kernel has. */
  pids?: number | undefined;
  /** MiB, without swap. Unless set, nine tenths of the host's memory. */
  memoryMb?: number | undefined;
  /** From 1 to 10,000, against the 100 that other groups beside it have. */
  cpuWeight?: number | undefined;
}

/** The part of an engine's `info` about control groups. */
export interface CgroupInfo {
  CgroupDriver: string;
  CgroupVersion?: string | undefined;
}

/** The parent of the control groups of all sandboxes. */
export interface ControlGroup {
  /** The group's name for the engine; undefined where it has no control groups. */
  parentOf(info: CgroupInfo): string | undefined;
  /** Sets the limits where they differ, and warns where that can't be done. Never rejects. */
  apply(): Promise<void>;
  /** Does what `apply` does, unless that has succeeded or failed already. */
  applyOnce(): Promise<void>;
}

const defaultCpuWeight = 100;

/** `root` is where control groups are mounted. */
export function createControlGroup(o: {
  names: HostNames;
  totals: TotalLimits;
  logger: Logger;
  root?: string;
}): ControlGroup {
  const { root = "/sys/fs/cgroup" } = o;
  let info: CgroupInfo | undefined;
  let isPending = true;
  const tellProblem = createStateLog(
    o.logger,
    "the limits of the sandboxes' control group can't be set from here: together they may take all processes and memory of the host",
  );

  async function apply(): Promise<void> {
    const controlGroup = info && nameOf(info, o.names);
    if (info === undefined || controlGroup === undefined) return;
    try {
      isPending = !(await setLimits(root, info, o.names, o.totals));
      tellProblem(undefined);
    } catch (error) {
      isPending = false;
      const reason = messageOf(error);
      tellProblem(reason, { reason, controlGroup });
    }
  }

  return {
    parentOf(given) {
      info = given;
      const name = nameOf(given, o.names);
      return name !== undefined && given.CgroupDriver === "cgroupfs" ? `/${name}` : name;
    },
    apply,
    async applyOnce() {
      if (isPending) await apply();
    },
  };
}

/** Removes the group where it is the engine's cgroupfs that left it, of each controller, and answers which folders. */
export async function removeControlGroup({ controlGroup }: HostNames, root = "/sys/fs/cgroup"): Promise<string[]> {
  const removed: string[] = [];
  // With control groups v1 there is one of each controller.
  for (const folder of [".", ...((await exists(root)) ? await readdir(root) : [])]) {
    const path = join(root, folder, controlGroup);
    if (!(await exists(path))) continue;
    await rmdir(path);
    removed.push(`control group ${path}`);
  }
  return removed;
}

function nameOf({ CgroupDriver: driver }: CgroupInfo, names: HostNames): string | undefined {
  if (driver === "systemd") return `${names.controlGroup}.slice`;
  return driver === "cgroupfs" ? names.controlGroup : undefined;
}

/** False when systemd hasn't made the group yet, which it does for the first container. */
async function setLimits(root: string, info: CgroupInfo, names: HostNames, totals: TotalLimits): Promise<boolean> {
  const name = nameOf(info, names) ?? "";
  const files = await (info.CgroupVersion === "2" ? unifiedFiles : splitFiles)(join(root), name, totals);
  for (const [file, value] of Object.entries(files)) {
    const isThere = await exists(dirname(file));
    if (!isThere && info.CgroupDriver === "systemd") return false;
    if (!isThere) {
      if (info.CgroupVersion === "2") await writeFile(join(root, "cgroup.subtree_control"), "+cpu +memory +pids");
      await mkdir(dirname(file));
    }
    if ((await readFile(file, "utf8")).trim() !== value) await writeFile(file, value);
  }
  return true;
}

/** Control groups v2: one folder for all controllers. */
async function unifiedFiles(root: string, name: string, totals: TotalLimits): Promise<Record<string, string>> {
  const { pids, memoryBytes, cpuWeight } = await valuesOf(totals);
  return {
    [join(root, name, "pids.max")]: String(pids),
    [join(root, name, "memory.max")]: String(memoryBytes),
    [join(root, name, "cpu.weight")]: String(cpuWeight),
  };
}

/** Control groups v1: a folder for each controller. A share of 1,024 is a weight of 100. */
async function splitFiles(root: string, name: string, totals: TotalLimits): Promise<Record<string, string>> {
  const { pids, memoryBytes, cpuWeight } = await valuesOf(totals);
  return {
    [join(root, "pids", name, "pids.max")]: String(pids),
    [join(root, "memory", name, "memory.limit_in_bytes")]: String(memoryBytes),
    [join(root, "cpu", name, "cpu.shares")]: String(Math.max(2, Math.round(cpuWeight * 10.24))),
  };
}

async function valuesOf(totals: TotalLimits): Promise<{ pids: number; memoryBytes: number; cpuWeight: number }> {
  const { pids = await defaultPids(), cpuWeight = defaultCpuWeight } = totals;
  const memoryMb = totals.memoryMb ?? Math.floor((totalmem() / mebibyte) * 0.9);
  return { pids, memoryBytes: memoryMb * mebibyte, cpuWeight };
}

async function defaultPids(): Promise<number> {
  const [maxIds, maxThreads] = await Promise.all(
    ["pid_max", "threads-max"].map(async (name) => Number(await readFile(`/proc/sys/kernel/${name}`, "utf8"))),
  );
  return Math.floor(Math.min(maxIds ?? 0, maxThreads ?? 0) * 0.75);
}
