import { statfs } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { gauge, type Metrics } from "./metrics.ts";
import { integer } from "./settings.ts";
import { mebibyte } from "./sizes.ts";

/** How old the figures may be by which work is refused. */
const maxAgeMs = 1_000;

/** The setting of each process that stores what tenants send on this machine's disks. */
export const diskReserveSetting = integer("SANDGATE_DISK_RESERVE_MB", {
  default: 1_024,
  min: 0,
  doc: "MB that stay free on this machine's disks: below that no sandbox is provisioned, no image is pulled and no logs or samples are taken; 0 for no reserve",
});

/** The room on the disks of some folders, of which a part is kept for the databases. */
export interface DiskSpace {
  /** Counts the disk of this folder too from now on. One that doesn't exist yet counts as the nearest that does. */
  add(folder: string): void;
  /**
   * The disk that has less free than the reserve, in one line; undefined: none. It was measured within the last second.
   * Throws the file system's error.
   */
  shortage(): Promise<string | undefined>;
  /** Bytes free on all these disks together, measured now; one that has several of the folders counts as often. Throws the file system's error. */
  measureFree(): Promise<number>;
  /** Bytes free besides the reserve, on the disk that has least, measured now; below 0 when that is short. Throws the file system's error. */
  measureRoom(): Promise<number>;
}

/** @param findFreeBytes of the folder's disk, for whom it isn't kept; the file system's own answer unless given */
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
    // Parts of one process that use a folder show the same disk.
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
    async measureRoom() {
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
