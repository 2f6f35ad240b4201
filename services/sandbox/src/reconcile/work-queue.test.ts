import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createWorkQueue, type Next, type Pass, type WorkQueue } from "./work-queue.ts";

let queue: WorkQueue;

/** A queue whose passes wait until the test ends them, the oldest first. */
function createHeldQueue(o: { owns?: (id: string) => boolean } = {}) {
  const begun: string[] = [];
  const passes: { signal: AbortSignal; end(next: Next): void; fail(error: Error): void }[] = [];
  const failures: unknown[] = [];
  queue = createWorkQueue({
    owns: o.owns ?? (() => true),
    work(id, { signal }: Pass) {
      begun.push(id);
      return new Promise<Next>((end, fail) => passes.push({ signal, end, fail }));
    },
    onFailure(_id, error) {
      failures.push(error);
      return { retryInMs: 20 };
    },
  });
  const oldest = () => {
    const pass = passes.shift();
    if (!pass) throw new Error("no pass is running");
    return pass;
  };
  return {
    begun,
    failures,
    oldest,
    async end(next: Next) {
      oldest().end(next);
      await new Promise(setImmediate);
    },
    endAll() {
      for (const pass of passes.splice(0)) pass.end("idle");
    },
  };
}

let held: ReturnType<typeof createHeldQueue>;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
});
afterEach(async () => {
  const stopped = queue.stop();
  held?.endAll();
  await stopped;
  vi.useRealTimers();
});

test("gives an id one pass at a time, and all wakes during it one more", async () => {
  held = createHeldQueue();
  for (const id of ["a", "a", "b", "a"]) queue.wake(id);
  expect(held.begun).toEqual(["a", "b"]);
  await held.end("idle");
  expect(held.begun).toEqual(["a", "b", "a"]);
  await held.end("idle");
  await held.end("idle");
  expect(held.begun).toEqual(["a", "b", "a"]);
  expect(["a", "b"].map(queue.isRunning)).toEqual([false, false]);
});

test("goes on at once with what asks for it", async () => {
  held = createHeldQueue();
  queue.wake("a");
  await held.end("again");
  expect(held.begun).toEqual(["a", "a"]);
});

test("comes back after the time that a pass named, and at a wake before it", async () => {
  held = createHeldQueue();
  queue.wake("a");
  await held.end({ retryInMs: 30 });
  expect(queue.isRunning("a")).toBe(false);
  vi.advanceTimersByTime(29);
  expect(held.begun).toEqual(["a"]);
  vi.advanceTimersByTime(1);
  expect(held.begun).toEqual(["a", "a"]);
  await held.end({ retryInMs: 50 });
  queue.wake("a");
  expect(held.begun).toEqual(["a", "a", "a"]);
  await held.end("idle");
  await vi.advanceTimersByTimeAsync(100);
  expect(held.begun).toEqual(["a", "a", "a"]);
});

test("a planned pass comes at its time, and doesn't replace one that is running or planned earlier", async () => {
  held = createHeldQueue();
  queue.plan("a", 20);
  queue.plan("a", 60_000);
  queue.plan("b", 60_000);
  queue.plan("b", 30);
  vi.advanceTimersByTime(19);
  expect(held.begun).toEqual([]);
  vi.advanceTimersByTime(1);
  expect(held.begun).toEqual(["a"]);
  queue.plan("a", 1);
  await held.end("idle");
  vi.advanceTimersByTime(9);
  expect(held.begun).toEqual(["a"]);
  vi.advanceTimersByTime(60_000);
  expect(held.begun).toEqual(["a", "b"]);
});

test("runs again after a failure when it is asked to", async () => {
  held = createHeldQueue();
  queue.wake("a");
  held.oldest().fail(new Error("broken"));
  await expect.poll(() => held.begun).toEqual(["a", "a"]);
  expect(held.failures).toEqual([new Error("broken")]);
});

test("a restart aborts the running pass, whose outcome does not count", async () => {
  held = createHeldQueue();
  queue.restart("a");
  expect(held.begun).toEqual([]);
  queue.wake("a");
  const first = held.oldest();
  queue.restart("a");
  expect(first.signal.aborted).toBe(true);
  first.fail(new Error("aborted"));
  await expect.poll(() => held.begun).toEqual(["a", "a"]);
  expect(held.failures).toEqual([]);
  const second = held.oldest();
  expect(second.signal.aborted).toBe(false);
  queue.restart("a");
  second.end({ retryInMs: 1 });
  await expect.poll(() => held.begun).toEqual(["a", "a", "a"]);
});

test("works on no id of another process, also when it becomes one between two passes", async () => {
  const own = new Set(["a"]);
  held = createHeldQueue({ owns: (id) => own.has(id) });
  queue.wake("b");
  queue.wake("a");
  own.delete("a");
  await held.end("again");
  expect(held.begun).toEqual(["a"]);
  expect(queue.isRunning("a")).toBe(false);
});

test("a pass that sleeps is woken, also by a wake that came before it slept", async () => {
  const steps: string[] = [];
  const asleep = Promise.withResolvers<void>();
  queue = createWorkQueue({
    owns: () => true,
    onFailure: () => "idle",
    async work(id, { sleep }) {
      if (steps.length > 0) return "idle";
      queue.wake(id);
      await sleep(60_000);
      steps.push("woken before");
      asleep.resolve();
      await sleep(60_000);
      steps.push("woken asleep");
      return "idle";
    },
  });
  queue.wake("a");
  await asleep.promise;
  queue.wake("a");
  await expect.poll(() => steps).toEqual(["woken before", "woken asleep"]);
});

test("a stop aborts what runs, waits for it, and begins nothing more", async () => {
  held = createHeldQueue();
  for (const id of ["a", "b"]) queue.wake(id);
  await held.end({ retryInMs: 10 });
  const pass = held.oldest();
  const stopped = queue.stop();
  expect(pass.signal.aborted).toBe(true);
  let isOver = false;
  const over = stopped.then(() => {
    isOver = true;
  });
  queue.wake("b");
  queue.wake("c");
  await vi.advanceTimersByTimeAsync(30);
  expect(isOver).toBe(false);
  pass.end("again");
  await over;
  expect(held.begun).toEqual(["a", "b"]);
});
