import { dirname } from "node:path";
import { openDiskSpace } from "@sandgate/kit/base/disk-space";
import type { Metrics } from "@sandgate/kit/base/metrics";
import { mebibyte } from "@sandgate/kit/base/sizes";
import type { DatabaseTarget } from "@sandgate/kit/storage/open-store";
import type { DatabaseFile } from "../store/store.ts";

/** With so much reusable, the database's file doesn't grow by the batches on their way. */
const enoughReusableBytes = 64 * mebibyte;

/**
 * Tells why the database's disk has no space for new rows, in one line; undefined: it has, or it is a database
 * server's. Throws the file system's error.
 */
export type DiskShortage = () => Promise<string | undefined>;

/** Watches the free disk. Below the reserve, rows only replace removed ones: a file never gives back what it took. */
export function openDiskShortage(o: {
  database: DatabaseTarget;
  /** Undefined for a database server's. */
  file: DatabaseFile | undefined;
  reserveMb: number;
  metrics: Metrics;
}): DiskShortage {
  const { database, file, reserveMb, metrics } = o;
  if (database.kind !== "sqlite") return async () => undefined;
  const disk = openDiskSpace({ folders: [dirname(database.file)], reserveMb, metrics });
  return async () => {
    const shortage = await disk.shortage();
    const isReusing = shortage !== undefined && (file?.reusableBytes() ?? 0) >= enoughReusableBytes;
    return isReusing ? undefined : shortage;
  };
}
