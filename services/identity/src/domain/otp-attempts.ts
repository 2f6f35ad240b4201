// Apart from otp.ts, so that the database's writer thread loads no more than this.
import { addMs, hourMs } from "@sandgate/kit/base/time";

/** As many wrong codes in a row are answered without a pause. */
const freeAttempts = 5;
const firstPauseMs = 30_000;
const longestPauseMs = hourMs;

/**
 * Until when codes are refused after this many attempts in a row, each of which counts until a right one ends the row.
 * Undefined: they aren't. The pause doubles with each attempt, so that at an hour each, a guess among three codes of a
 * million takes decades.
 */
export function refusedUntil(attempts: number, now: Date): Date | undefined {
  if (attempts < freeAttempts) return undefined;
  return addMs(now, Math.min(firstPauseMs * 2 ** (attempts - freeAttempts), longestPauseMs));
}
