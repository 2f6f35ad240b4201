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
const maxVerifiedLayers = 1_000_000;

/**
 * Which of so many layers are forgotten next, the oldest first: up to `limit` of those that were verified before this
 * time.
 */
export function nextForgotten(now: Date, layers: number, limit: number): { before: Date; limit: number } {
  const excess = layers - maxVerifiedLayers;
  if (excess > 0) return { before: now, limit: Math.min(excess, limit) };
  return { before: new Date(now.getTime() - keptDays * dayMs), limit };
}
