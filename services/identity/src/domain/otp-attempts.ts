// The database's writer thread loads this file, so that it is kept apart from otp.ts and its library.
import { addMs, hourMs } from "@sandgate/kit/base/time";
import type { SecondFactor } from "./second-factors.ts";

/** How many wrong codes in a row are answered without a pause. */
const freeAttempts = 5;
const firstPauseMs = 30_000;
const longestPauseMs = hourMs;

export type OtpAttempt =
  /** The user has no second factor that is enabled. */
  | { outcome: "none" }
  /** Too many attempts without a right code; not counted. */
  | { outcome: "refused"; until: Date }
  /** Counted as wrong until a code is accepted. */
  | { outcome: "counted"; factor: SecondFactor };

/** An enabled second factor, and the attempts at it since the last right code. */
interface OtpAttempts {
  factor: SecondFactor;
  attempts: number;
  refusedUntil: Date | undefined;
}

/** Decides whether another code is looked at, and what is stored of the attempt then. */
export function decideOtpAttempt(
  enabled: OtpAttempts | undefined,
  now: Date,
): { attempt: OtpAttempt; change?: Pick<OtpAttempts, "attempts" | "refusedUntil"> } {
  if (!enabled) return { attempt: { outcome: "none" } };
  const { factor, refusedUntil: until } = enabled;
  if (until && until > now) return { attempt: { outcome: "refused", until } };
  const attempts = enabled.attempts + 1;
  return { attempt: { outcome: "counted", factor }, change: { attempts, refusedUntil: refusedUntil(attempts, now) } };
}

/**
 * Returns until when codes are refused after this many attempts in a row; undefined when they aren't. Each attempt
 * counts until a right code ends the row. The pause doubles with each attempt up to an hour, at which guessing one of
 * three codes of a million takes decades.
 */
export function refusedUntil(attempts: number, now: Date): Date | undefined {
  if (attempts < freeAttempts) return undefined;
  return addMs(now, Math.min(firstPauseMs * 2 ** (attempts - freeAttempts), longestPauseMs));
}
