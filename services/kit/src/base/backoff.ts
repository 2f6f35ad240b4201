/** Bounds of the delays between attempts, in milliseconds. */
export interface Backoff {
  firstMs: number;
  lastMs: number;
}

/**
 * Whole milliseconds to wait after that many failures in a row, from 1: `firstMs` after the first, doubled with each, up to `lastMs`.
 * A random part of it, between half and all, so that many who failed at once don't come back at once.
 */
export function backoffMs(failures: number, { firstMs, lastMs }: Backoff, random: () => number = Math.random): number {
  return Math.round(Math.min(lastMs, firstMs * 2 ** (failures - 1)) * (0.5 + random() / 2));
}
