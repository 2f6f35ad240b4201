import { statfs } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { gauge, type Metrics } from "./metrics.ts";
import { integer } from "./settings.ts";
import { mebibyte } from "./sizes.ts";

/** How old a measurement may be when work is refused because of it. */
const maxAgeMs = 1_000;

/** The setting of each process that stores what tenants send on this machine's disks. */
export const diskReserveSetting = integer("SANDGATE_DISK_RESERVE_MB", {
  default: 1_024,
  min: 0,
  doc: "MB that stay free on this machine's disks. Below that, no sandbox is provisioned, no image is pulled and no logs or samples are stored; 0 for no reserve",
});

/** As `diskReserveSetting`, for processes that have others make files on this machine's disks. */
export const inodeReserveSetting = integer("SANDGATE_DISK_RESERVE_INODES", {
  default: 65_536,
  min: 0,
  doc: "Inodes (files and folders) that stay free on this machine's disks. Below that, no sandbox is provisioned and no image is pulled; 0 for no reserve",
});

/** What is free on a disk. */
export interface FreeSpace {
  bytes: number;
  /** The bytes that the disk has in all. Unless known, a share of it reserves nothing. */
  totalBytes?: number;
  /** Undefined on a file system that makes inodes as they are needed. */
  inodes?: number | undefined;
}

/** The free space on the disks of some folders. A reserve of it is kept for the databases. */
export interface DiskSpace {
  /**
   * From now on includes the disk of this folder. A folder that doesn't exist yet counts as its nearest existing
   * parent.
   */
  add(folder: string): void;
  /**
   * Describes in one line a disk that has less free than the reserve; undefined if there is none. The measurement is at
   * most a second old. Throws the file system's error.
   */
  shortage(): Promise<string | undefined>;
  /**
   * Measures what is free on all folders' disks together; a disk with two of the folders counts twice. Throws the file
   * system's error.
   */
  measureFree(): Promise<{ bytes: number; inodes: number }>;
  /**
   * Measures the free bytes beyond the reserves on the disk that has the fewest; negative if a disk has too few bytes or
   * inodes. Throws the file system's error.
   */
  measureAvailable(): Promise<number>;
}

/**
 * @param reserveInodes the inodes that stay free, 0 unless given
 * @param unavailablePercent the share of a disk that is never available, which is no shortage; 0 unless given
 * @param findFree what of a folder's disk is free to unprivileged users; asks the file system unless given
 */
export function openDiskSpace(o: {
  folders: readonly string[];
  reserveMb: number;
  reserveInodes?: number;
  unavailablePercent?: number;
  metrics: Metrics;
  findFree?: (folder: string) => Promise<FreeSpace>;
}): DiskSpace {
  const { reserveMb, reserveInodes = 0, unavailablePercent = 0, findFree = freeSpaceOf } = o;
  const folders = new Set(o.folders.map((folder) => resolve(folder)));
  let measured: { at: number; disks: Promise<Disk[]> } | undefined;

  async function measure(): Promise<Disk[]> {
    return Promise.all([...folders].map(async (folder) => ({ folder, free: await findFree(folder) })));
  }

  /** What the disk has too little of, if anything. */
  function lackOf({ folder, free: { bytes, inodes } }: Disk): string | undefined {
    const lack = (free: string, reserve: string, { name }: { name: string }) =>
      `${free} are free on the disk of ${folder}, less than the reserve of ${reserve} (${name})`;
    if (bytes < reserveMb * mebibyte)
      return lack(`${Math.floor(bytes / mebibyte)} MB`, `${reserveMb} MB`, diskReserveSetting);
    if (inodes !== undefined && inodes < reserveInodes)
      return lack(`${inodes} inodes`, `${reserveInodes}`, inodeReserveSetting);
    return undefined;
  }

  function availableOf({ free: { bytes, totalBytes = 0 } }: Disk): number {
    return bytes - Math.max(reserveMb * mebibyte, (totalBytes * unavailablePercent) / 100);
  }

  function recent(): Promise<Disk[]> {
    const now = performance.now();
    if (!measured || now - measured.at >= maxAgeMs) measured = { at: now, disks: measure() };
    return measured.disks;
  }

  gauge(o.metrics, {
    name: "sandgate_disk_free_bytes",
    help: "Bytes free on the disk of a folder of this machine",
    labelNames: ["folder"],
    // Services of one process that use the same folder show the same disk.
    aggregator: "min",
    async collect() {
      for (const { folder, free } of await recent()) this.set({ folder }, free.bytes);
    },
  });
  gauge(o.metrics, {
    name: "sandgate_disk_free_inodes",
    help: "Inodes free on the disk of a folder of this machine, where its file system has a fixed number",
    labelNames: ["folder"],
    aggregator: "min",
    async collect() {
      for (const { folder, free } of await recent()) if (free.inodes !== undefined) this.set({ folder }, free.inodes);
    },
  });

  return {
    add(folder) {
      if (folders.has(resolve(folder))) return;
      folders.add(resolve(folder));
      measured = undefined;
    },
    async shortage() {
      if (reserveMb === 0 && reserveInodes === 0) return undefined;
      return (await recent()).map(lackOf).find((lack) => lack !== undefined);
    },
    async measureFree() {
      const disks = await measure();
      return {
        bytes: disks.reduce((sum, { free }) => sum + free.bytes, 0),
        inodes: disks.reduce((sum, { free }) => sum + (free.inodes ?? 0), 0),
      };
    },
    async measureAvailable() {
      const disks = await measure();
      const bytes = Math.min(...disks.map(availableOf));
      return disks.some((disk) => lackOf(disk) !== undefined) ? Math.min(bytes, -1) : bytes;
    },
  };
}

interface Disk {
  folder: string;
  free: FreeSpace;
}

async function freeSpaceOf(folder: string): Promise<FreeSpace> {
  try {
    const { bavail, blocks, bsize, files, ffree } = await statfs(folder);
    return { bytes: bavail * bsize, totalBytes: blocks * bsize, inodes: files === 0 ? undefined : ffree };
  } catch (error) {
    const isMissing = error instanceof Error && "code" in error && error.code === "ENOENT";
    if (!isMissing || dirname(folder) === folder) throw error;
    return freeSpaceOf(dirname(folder));
  }
}
