import { hash } from "node:crypto";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { addMs, minuteMs } from "@sandgate/kit/base/time";

/** How often something may happen in a window, which begins with the first time. */
export interface Budget {
  /** A SHA-256 hash of what is limited. */
  key: Uint8Array;
  limit: number;
  windowMs: number;
}

export interface Consumed {
  granted: number;
  /** Left in the window after this. */
  remaining: number;
  endsAt: Date;
}

/** Which budget had nothing left, and when its window ends. */
export interface Overspent {
  index: number;
  endsAt: Date;
}

/** The window of a limit that names none. */
export const requestWindowMs = minuteMs;

/**
 * Whether a window is over. One that ends in more than twice its length was stored before the clock was set back; less
 * may be the difference of two machines' clocks.
 */
export function isWindowOver(endsAt: Date, windowMs: number, now: Date): boolean {
  return endsAt <= now || endsAt > addMs(now, 2 * windowMs);
}

/** How much of what is wanted a window still has. */
export function grantOf(used: number, limit: number, wanted: number): number {
  return Math.max(0, Math.min(wanted, limit - used));
}

/** How often what the text names may happen. */
export function budget(what: string, limit: number, windowMs: number): Budget {
  return { key: hashKey(what), limit, windowMs };
}

/** The stored form of a text: of one length, and not to be read. */
export function hashKey(text: string): Uint8Array {
  return new Uint8Array(hash("sha256", text, "buffer"));
}

export function rateLimited(message: string, { endsAt }: Overspent, now: Date): DomainError {
  return new DomainError("RATE_LIMITED", message, {
    retryAfterSeconds: Math.ceil((endsAt.getTime() - now.getTime()) / 1000),
  });
}
