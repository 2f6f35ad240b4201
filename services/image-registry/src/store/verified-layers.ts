import type { VerifiedLayer } from "../domain/verified-layers.ts";

export interface VerifiedLayers {
  /** Which of these layers were verified at this registry. */
  find(host: string, digests: readonly string[]): Promise<VerifiedLayer[]>;
  /** Stores layers that were verified at this registry. A layer that is stored already gets the new time. */
  put(host: string, layers: readonly VerifiedLayer[], at: Date): Promise<void>;
  /** About how many are stored. */
  count(): Promise<number>;
  /** Forgets up to `limit` layers that were verified before this, the oldest first, and returns how many. */
  deleteBefore(before: Date, limit: number): Promise<number>;
}
