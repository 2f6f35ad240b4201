import { getEventListeners } from "node:events";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createSleeper } from "./wakeup.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const { signal } = new AbortController();

test("a sleep ends when its time is up, and leaves nothing at its signal", async () => {
  let isAwake = false;
  const sleeping = createSleeper()
    .sleep(1_000, signal)
    .then(() => {
      isAwake = true;
    });
  await vi.advanceTimersByTimeAsync(999);
  expect(isAwake).toBe(false);
  await vi.advanceTimersByTimeAsync(1);
  await sleeping;
  expect(getEventListeners(signal, "abort")).toEqual([]);
});

test("who is woken sleeps no longer, and the next time as long as it should", async () => {
  const sleeper = createSleeper();
  const sleeping = sleeper.sleep(1_000, signal);
  sleeper.wake();
  await sleeping;
  expect(vi.getTimerCount()).toBe(0);
  const again = sleeper.sleep(1_000, signal);
  await vi.advanceTimersByTimeAsync(999);
  expect(vi.getTimerCount()).toBe(1);
  await vi.advanceTimersByTimeAsync(1);
  await again;
});

test("a wake between two sleeps is not lost, and counts once", async () => {
  const sleeper = createSleeper();
  sleeper.wake();
  sleeper.wake();
  await sleeper.sleep(1_000, signal);
  void sleeper.sleep(1_000, signal);
  expect(vi.getTimerCount()).toBe(1);
});

test("an abort ends a sleep, and every later one at once", async () => {
  const stopping = new AbortController();
  const sleeper = createSleeper();
  const sleeping = sleeper.sleep(1_000, stopping.signal);
  stopping.abort();
  await sleeping;
  await sleeper.sleep(1_000, stopping.signal);
  expect(vi.getTimerCount()).toBe(0);
});
