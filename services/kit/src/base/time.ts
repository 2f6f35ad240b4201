export const minuteMs = 60_000;
export const hourMs = 60 * minuteMs;
export const dayMs = 24 * hourMs;

/** The time that many milliseconds after another; before it when negative. */
export function addMs(time: Date, ms: number): Date {
  return new Date(time.getTime() + ms);
}

/** The time of a column or field that may be empty. */
export function toOptionalDate(ms: number | null | undefined): Date | undefined {
  return ms === null || ms === undefined ? undefined : new Date(ms);
}
