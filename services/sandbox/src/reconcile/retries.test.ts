import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createRetries } from "./retries.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

test("a dependency is down too long once it was for as long as it may be, however the clock is set meanwhile", () => {
  const retries = createRetries();
  const isDown = (downForMs?: number) => retries.isDownTooLong("s", "registry", 30_000, downForMs);
  expect(isDown()).toBe(false);
  vi.setSystemTime(Date.now() + 3_600_000);
  expect(isDown()).toBe(false);
  vi.setSystemTime(Date.now() - 7_200_000);
  vi.advanceTimersByTime(29_999);
  expect(isDown()).toBe(false);
  vi.advanceTimersByTime(1);
  expect(isDown()).toBe(true);
  retries.markUp("s", "registry");
  expect(isDown(30_000)).toBe(true);
});
