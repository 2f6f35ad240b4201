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
   * Measures the free bytes of all folders' disks together; a disk with two of the folders counts twice. Throws the
   * file system's error.
   */
  measureFree(): Promise<number>;
  /**
   * Measures the free bytes beyond the reserve on the disk that has the fewest; negative if it has too few. Throws the
   * file system's error.
   */
  measureAvailable(): Promise<number>;
}

/**
 * @param findFreeBytes the bytes of a folder's disk that are free to unprivileged users; asks the file system unless
 * given
 */
export function openDiskSpace(o: {
  folders: readonly string[];
  reserveMb: number;
  metrics: Metrics;
  findFreeBytes?: (folder: string) => Promise<number>;
}): DiskSpace {
  const folders = new Set(o.folders.map((folder) => resolve(folder)));
  const findFreeBytes = o.findFreeBytes ?? freeBytesOf;
  let measured: { at: number; disks: Promise<Disk[]> } | undefined;

  async function measure(): Promise<Disk[]> {
    return Promise.all([...folders].map(async (folder) => ({ folder, freeBytes: await findFreeBytes(folder) })));
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
      for (const { folder, freeBytes } of await recent()) this.set({ folder }, freeBytes);
    },
  });

  return {
    add(folder) {
      if (folders.has(resolve(folder))) return;
      folders.add(resolve(folder));
      measured = undefined;
    },
    async shortage() {
      if (o.reserveMb === 0) return undefined;
      const short = (await recent()).find(({ freeBytes }) => freeBytes < o.reserveMb * mebibyte);
      if (!short) return undefined;
      const freeMb = Math.floor(short.freeBytes / mebibyte);
      return `${freeMb} MB are free on the disk of ${short.folder}, less than the reserve of ${o.reserveMb} MB (${diskReserveSetting.name})`;
    },
    async measureFree() {
      return (await measure()).reduce((sum, { freeBytes }) => sum + freeBytes, 0);
    },
    async measureAvailable() {
      const disks = await measure();
      return Math.min(...disks.map(({ freeBytes }) => freeBytes)) - o.reserveMb * mebibyte;
    },
  };
}

interface Disk {
  folder: string;
  freeBytes: number;
}

async function freeBytesOf(folder: string): Promise<number> {
  try {
    const { bavail, bsize } = await statfs(folder);
    return bavail * bsize;
  } catch (error) {
    const isMissing = error instanceof Error && "code" in error && error.code === "ENOENT";
    if (!isMissing || dirname(folder) === folder) throw error;
    return freeBytesOf(dirname(folder));
  }
}
