/** The time that many milliseconds after another; before it when negative. */
export function addMs(time: Date, ms: number): Date {
  return new Date(time.getTime() + ms);
}
