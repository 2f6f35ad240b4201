import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { acceptSandbox } from "../domain/sandbox.ts";
import { createLoopbackBus } from "../reconcile/scripted-runtime.fixture.ts";
import { createChanges } from "./changes.ts";
import { waitUntilSettled } from "./wait-until-settled.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

test("a wait ends when its time is up, however the clock is set meanwhile", async () => {
  const image = { imageId: "i1", reference: "registry.example/app:1", registryId: "", isDefault: false, memoryMb: 256 };
  const request = { id: "s", name: "n", workspaceId: "w", image, labels: {}, createdBy: "u" };
  const sandbox = acceptSandbox({ ...request, now: new Date() });
  const ended = vi.fn();
  waitUntilSettled({
    sandboxes: { get: async () => sandbox },
    changes: createChanges(createLoopbackBus()),
    ids: ["s"],
    timeoutMs: 60_000,
    signal: new AbortController().signal,
  }).then(ended, ended);
  vi.setSystemTime(Date.now() + 120_000);
  await vi.advanceTimersByTimeAsync(59_999);
  expect(ended).not.toHaveBeenCalled();
  vi.setSystemTime(Date.now() - 240_000);
  await vi.advanceTimersByTimeAsync(1);
  expect(ended).toHaveBeenCalledWith([sandbox]);
});
