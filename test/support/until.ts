import { vi } from "vitest";

/**
 * Repeats the check until it no longer throws, and returns its result. Every 20 ms unless given; gives up after two
 * minutes.
 */
export function until<T>(check: () => T | Promise<T>, { intervalMs = 20 } = {}): Promise<T> {
  return vi.waitFor(check, { timeout: 120_000, interval: intervalMs });
}
