import { dirname } from "node:path";
import { openDiskSpace } from "@sandgate/kit/base/disk-space";
import type { Metrics } from "@sandgate/kit/base/metrics";
import { mebibyte } from "@sandgate/kit/base/sizes";
import type { DatabaseTarget } from "@sandgate/kit/storage/open-store";
import type { TelemetryStore } from "./store/store.ts";

/** With so much reusable, the database's file doesn't grow by the batches on their way. */
const enoughReusableBytes = 64 * mebibyte;

/** Whether the disk of the database has room for new rows. */
export interface Room {
  /**
   * Why there is none, in one line; undefined: there is. A database server's disk is its own affair. Throws the file system's
   * error.
   */
  shortage(): Promise<string | undefined>;
}

/** Below the reserve of free disk, rows are only stored where others were removed, for a file never gives back what it has. */
export function openRoom(o: {
  database: DatabaseTarget;
  store: Pick<TelemetryStore, "reusableBytes">;
  reserveMb: number;
  metrics: Metrics;
}): Room {
  const { database, store, reserveMb, metrics } = o;
  if (database.kind !== "sqlite") return { shortage: async () => undefined };
  const disk = openDiskSpace({ folders: [dirname(database.file)], reserveMb, metrics });
  return {
    async shortage() {
      const shortage = await disk.shortage();
      const isReusing = shortage !== undefined && (store.reusableBytes() ?? 0) >= enoughReusableBytes;
      return isReusing ? undefined : shortage;
    },
  };
}
