import type { VerifiedLayer } from "../domain/verified-layers.ts";

export interface VerifiedLayers {
  /** Which of these layers were verified at this registry. */
  find(host: string, digests: readonly string[]): Promise<VerifiedLayer[]>;
  /** Stores layers that were verified at this registry. A layer that is stored already gets the new time. */
  put(host: string, layers: readonly VerifiedLayer[], at: Date): Promise<void>;
  /** When the newest layer was verified that has so many newer ones; undefined: there aren't as many. */
  findBeyond(count: number): Promise<Date | undefined>;
  /** Forgets up to `limit` layers that were verified before this, and returns how many. */
  deleteBefore(before: Date, limit: number): Promise<number>;
}
