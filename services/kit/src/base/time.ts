export const minuteMs = 60_000;
export const hourMs = 60 * minuteMs;
export const dayMs = 24 * hourMs;

/**
 * Returns the milliseconds of a clock that nobody sets. Ages, leases and caches are measured by it: the time of day
 * goes back or jumps when the machine's clock is corrected.
 */
export function monotonicMs(): number {
  return performance.now();
}

/** Returns the time so many milliseconds later, or earlier if negative. */
export function addMs(time: Date, ms: number): Date {
  return new Date(time.getTime() + ms);
}

/** Returns the time in a column or field that may be empty. */
export function toOptionalDate(ms: number | null | undefined): Date | undefined {
  return ms === null || ms === undefined ? undefined : new Date(ms);
}
