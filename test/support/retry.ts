import { setTimeout as delay } from "node:timers/promises";

/**
 * Repeats the check until it no longer throws, and returns its result. Once the time is up what it threw last is
 * thrown. For what also runs outside of tests, where `until` can't.
 */
export async function retry<T>(
  check: () => T | Promise<T>,
  { timeoutMs, intervalMs }: { timeoutMs: number; intervalMs: number },
): Promise<T> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() > deadline) throw error;
    }
    await delay(intervalMs);
  }
}
