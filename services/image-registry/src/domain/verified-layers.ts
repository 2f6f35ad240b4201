import { dayMs } from "@sandgate/kit/base/time";

/** A layer whose bytes were downloaded from a registry and have its digest. */
export interface VerifiedLayer {
  readonly digest: string;
  /** The digest of its unpacked content. */
  readonly diffId: string;
}

/** A layer that was verified longer ago has to be verified again. This bounds how many records there are. */
const keptDays = 90;
/** Records that are kept, of all workspaces and registries: some 200 MB, whatever a tenant's own registry serves. */
export const maxVerifiedLayers = 1_000_000;

/**
 * Layers that were verified before this are forgotten.
 *
 * @param beyond when the newest layer beyond `maxVerifiedLayers` was verified
 */
export function forgottenBefore(now: Date, beyond: Date | undefined): Date {
  const old = new Date(now.getTime() - keptDays * dayMs);
  return beyond && beyond > old ? beyond : old;
}
