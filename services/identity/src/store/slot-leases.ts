import type { SlotRequest } from "../domain/slot-leases.ts";

/** Leases of slots: what the facades may have open at once. */
export interface SlotLeases {
  /**
   * Sets what `holder` has of each key, for `slotLeaseMs`: as many slots as it wants and the others leave. No key
   * twice. Answers how many for each.
   */
  acquire(holder: string, requests: readonly SlotRequest[], now: Date): Promise<number[]>;
}
