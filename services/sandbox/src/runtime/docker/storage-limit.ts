import { type Engine, type EngineInfo, readInfo } from "@sandgate/docker-engine/client";
import type { Logger } from "@sandgate/kit/base/logging";

/**
 * Whether the engine's storage limits what containers write: only overlay2 on xfs with pquota, btrfs, zfs and
 * devicemapper do.
 */
export interface StorageLimit {
  /** True until the opposite is known. */
  isEnforced(): boolean;
  /**
   * The engine refused a container's limit with this reason. Logs the first one; concurrent creations may be refused
   * too.
   */
  markMissing(reason: string): void;
  /** Asks the engine for what otherwise its refusal of the first container would show. */
  check(): Promise<void>;
}

export function createStorageLimit({ engine, logger }: { engine: Engine; logger: Logger }): StorageLimit {
  let isEnforced = true;

  function markMissing(reason: string): void {
    if (isEnforced) {
      logger.info(
        { reason },
        "the engine's storage can't limit what a sandbox writes: it is measured instead, and a sandbox over its limit is stopped some seconds later",
      );
    }
    isEnforced = false;
  }

  return {
    isEnforced: () => isEnforced,
    markMissing,
    async check() {
      if (!isEnforced) return;
      const reason = storageProblem(await readInfo(engine));
      if (reason !== undefined) markMissing(reason);
    },
  };
}

/** Why storage can't limit what a container writes; undefined: it can, or that is not known. */
export function storageProblem(info: Pick<EngineInfo, "Driver" | "DriverStatus">): string | undefined {
  const backing = info.DriverStatus?.find(([name]) => name === "Backing Filesystem")?.[1];
  // The engine sets project quotas on xfs alone.
  if (!["overlay2", "vfs"].includes(info.Driver) || backing === undefined || backing === "xfs") return undefined;
  return `${info.Driver} on ${backing} has no quotas`;
}
