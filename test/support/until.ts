import { vi } from "vitest";

/** Answers what the check does, once it throws no more. Asks every 20 ms unless told, and throws itself after two minutes. */
export function until<T>(check: () => T | Promise<T>, { intervalMs = 20 } = {}): Promise<T> {
  return vi.waitFor(check, { timeout: 120_000, interval: intervalMs });
}
