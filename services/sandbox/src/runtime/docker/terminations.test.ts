import { expect, test } from "vitest";
import { createTerminations, type TerminableContainer } from "./terminations.ts";

/** Containers that exit when the test says so. */
function createContainers() {
  const signals: string[] = [];
  const ends: (() => void)[] = [];
  /** Those that were signalled and haven't exited. */
  let ending = 0;
  let most = 0;
  return {
    signals,
    most: () => most,
    async endOldest() {
      ends.shift()?.();
      await new Promise(setImmediate);
    },
    make(): TerminableContainer {
      const ended = Promise.withResolvers<boolean>();
      return {
        async signal(name) {
          signals.push(name);
          ending += 1;
          most = Math.max(most, ending);
          ends.push(() => {
            ending -= 1;
            ended.resolve(true);
          });
          return true;
        },
        hasExitedWithin: () => ended.promise,
      };
    },
  };
}

/** A container that ignores SIGTERM. */
function makeStubborn(signals: string[]): TerminableContainer {
  let isKilled = false;
  return {
    async signal(name) {
      signals.push(name);
      isKilled ||= name === "SIGKILL";
      return true;
    },
    // The time passes at once.
    hasExitedWithin: async () => isKilled,
  };
}

test("no more containers are terminated at once than there are slots, however many are waiting", async () => {
  const containers = createContainers();
  const terminations = createTerminations({ atOnce: 3 });
  const ending = Array.from({ length: 20 }, (_, i) =>
    i % 2 === 0 ? terminations.terminate(containers.make(), 10_000) : terminations.kill(containers.make()),
  );
  await new Promise(setImmediate);
  expect(containers.signals).toHaveLength(3);
  for (let ended = 1; ended <= 20; ended++) {
    await containers.endOldest();
    expect(containers.signals).toHaveLength(Math.min(20, 3 + ended));
  }
  await Promise.all(ending);
  expect(containers.most()).toBe(3);
});

test("a container that ignores SIGTERM has no slot while its grace lasts", async () => {
  const terminations = createTerminations({ atOnce: 1 });
  const waits: number[] = [];
  const stubborn: TerminableContainer = {
    signal: async () => true,
    hasExitedWithin(timeoutMs) {
      waits.push(timeoutMs);
      // Its hold passes at once, its grace doesn't.
      return waits.length === 1 ? Promise.resolve(false) : new Promise(() => {});
    },
  };
  void terminations.terminate(stubborn, 10_000);
  const containers = createContainers();
  const next = terminations.terminate(containers.make(), 10_000);
  await new Promise(setImmediate);
  await containers.endOldest();
  expect(await next).toBe(true);
  const [hold, grace = 0] = waits;
  expect(hold).toBe(500);
  // As a timer takes it.
  expect(Number.isInteger(grace)).toBe(true);
  expect(grace).toBeGreaterThan(500);
  expect(grace).toBeLessThanOrEqual(10_000);
});

test("a container that has not exited within its grace is reported as running, and killed", async () => {
  const terminations = createTerminations({ atOnce: 1 });
  const signals: string[] = [];
  const stubborn = makeStubborn(signals);
  expect(await terminations.terminate(stubborn, 10_000)).toBe(false);
  await terminations.kill(stubborn);
  expect(signals).toEqual(["SIGTERM", "SIGKILL"]);
});

test("a container that didn't run has exited, and one that outlives SIGKILL is an error", async () => {
  const terminations = createTerminations({ atOnce: 1 });
  const gone: TerminableContainer = {
    signal: async () => false,
    hasExitedWithin: () => Promise.reject(new Error("never asked")),
  };
  expect(await terminations.terminate(gone, 10_000)).toBe(true);
  await terminations.kill(gone);
  const immortal: TerminableContainer = { signal: async () => true, hasExitedWithin: async () => false };
  await expect(terminations.kill(immortal)).rejects.toThrow("had not exited 30 s after SIGKILL");
});

test("a removal waits for its turn behind terminations", async () => {
  const containers = createContainers();
  const terminations = createTerminations({ atOnce: 1 });
  const ending = terminations.kill(containers.make());
  let isRemoved = false;
  const removing = terminations.remove(async () => {
    isRemoved = true;
    return "removed";
  });
  await new Promise(setImmediate);
  expect(isRemoved).toBe(false);
  await containers.endOldest();
  expect(await removing).toBe("removed");
  await ending;
});
