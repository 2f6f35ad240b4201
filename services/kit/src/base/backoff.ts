/** Bounds of the delays between attempts, in milliseconds. */
export interface Backoff {
  firstMs: number;
  lastMs: number;
}

/**
 * Returns how many whole milliseconds to wait after so many failures in a row, at least one. The delay starts at
 * `firstMs` and doubles with each failure up to `lastMs`. A random value between half of it and all of it is returned,
 * so that callers that failed together don't retry together.
 */
export function backoffMs(failures: number, { firstMs, lastMs }: Backoff, random: () => number = Math.random): number {
  return Math.round(Math.min(lastMs, firstMs * 2 ** (failures - 1)) * (0.5 + random() / 2));
}
