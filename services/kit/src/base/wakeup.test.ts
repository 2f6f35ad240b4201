import { getEventListeners } from "node:events";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createWakeup } from "./wakeup.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const { signal } = new AbortController();

test("a sleep ends when its time is up, and leaves nothing at its signal", async () => {
  let isAwake = false;
  const sleeping = createWakeup()
    .wait(1_000, signal)
    .then(() => {
      isAwake = true;
    });
  await vi.advanceTimersByTimeAsync(999);
  expect(isAwake).toBe(false);
  await vi.advanceTimersByTimeAsync(1);
  await sleeping;
  expect(getEventListeners(signal, "abort")).toEqual([]);
});

test("a woken task sleeps no longer, and the next time as long as it should", async () => {
  const wakeup = createWakeup();
  const sleeping = wakeup.wait(1_000, signal);
  wakeup.wake();
  await sleeping;
  expect(vi.getTimerCount()).toBe(0);
  const again = wakeup.wait(1_000, signal);
  await vi.advanceTimersByTimeAsync(999);
  expect(vi.getTimerCount()).toBe(1);
  await vi.advanceTimersByTimeAsync(1);
  await again;
});

test("a wake between two sleeps is not lost, and counts once", async () => {
  const wakeup = createWakeup();
  wakeup.wake();
  wakeup.wake();
  await wakeup.wait(1_000, signal);
  void wakeup.wait(1_000, signal);
  expect(vi.getTimerCount()).toBe(1);
});

test("an abort ends a sleep, and every later one at once", async () => {
  const stopping = new AbortController();
  const wakeup = createWakeup();
  const sleeping = wakeup.wait(1_000, stopping.signal);
  stopping.abort();
  await sleeping;
  await wakeup.wait(1_000, stopping.signal);
  expect(vi.getTimerCount()).toBe(0);
});
