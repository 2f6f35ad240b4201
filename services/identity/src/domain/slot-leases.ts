/** What a facade wants of a limit on what may be open at once. */
export interface SlotRequest {
  /** A SHA-256 hash of what is limited. */
  key: Uint8Array;
  /** How many slots all facades share. */
  limit: number;
  /** Slots in use. They are leased whatever the limit. */
  used: number;
  /** How many slots the facade wants in all; 0 gives everything back. */
  wanted: number;
}

/** How long a facade has slots after it last asked for them. */
export const slotLeaseMs = 30_000;

/** How many slots a facade gets, of those that the others leave. */
export function slotsFor({ limit, used, wanted }: SlotRequest, leasedByOthers: number): number {
  return Math.max(used, Math.min(wanted, limit - leasedByOthers));
}
