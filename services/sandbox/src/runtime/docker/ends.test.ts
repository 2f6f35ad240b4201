import { expect, test } from "vitest";
import { createEnds, type Ending } from "./ends.ts";

/** Containers of which the test says when they have ended. */
function createContainers() {
  const signals: string[] = [];
  const ends: (() => void)[] = [];
  /** Those that were signalled and haven't ended. */
  let ending = 0;
  let most = 0;
  return {
    signals,
    most: () => most,
    async endOldest() {
      ends.shift()?.();
      await new Promise(setImmediate);
    },
    make(): Ending {
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
        hasEndedWithin: () => ended.promise,
      };
    },
  };
}

/** One that ignores SIGTERM. */
function makeStubborn(signals: string[]): Ending {
  let isKilled = false;
  return {
    async signal(name) {
      signals.push(name);
      isKilled ||= name === "SIGKILL";
      return true;
    },
    // The time passes at once.
    hasEndedWithin: async () => isKilled,
  };
}

test("no more containers end at once than there are places, however many are to end", async () => {
  const containers = createContainers();
  const ends = createEnds({ atOnce: 3 });
  const ending = Array.from({ length: 20 }, (_, i) =>
    i % 2 === 0 ? ends.terminate(containers.make(), 10_000) : ends.kill(containers.make()),
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

test("a container that ignores SIGTERM keeps no place while its grace lasts", async () => {
  const ends = createEnds({ atOnce: 1 });
  const waits: number[] = [];
  const stubborn: Ending = {
    signal: async () => true,
    hasEndedWithin(timeoutMs) {
      waits.push(timeoutMs);
      // Its hold passes at once, its grace doesn't.
      return waits.length === 1 ? Promise.resolve(false) : new Promise(() => {});
    },
  };
  void ends.terminate(stubborn, 10_000);
  const containers = createContainers();
  const next = ends.terminate(containers.make(), 10_000);
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

test("one that has not ended within its grace is told so, and is killed", async () => {
  const ends = createEnds({ atOnce: 1 });
  const signals: string[] = [];
  const stubborn = makeStubborn(signals);
  expect(await ends.terminate(stubborn, 10_000)).toBe(false);
  await ends.kill(stubborn);
  expect(signals).toEqual(["SIGTERM", "SIGKILL"]);
});

test("one that didn't run has ended, and one that outlives SIGKILL is an error", async () => {
  const ends = createEnds({ atOnce: 1 });
  const gone: Ending = { signal: async () => false, hasEndedWithin: () => Promise.reject(new Error("never asked")) };
  expect(await ends.terminate(gone, 10_000)).toBe(true);
  await ends.kill(gone);
  const immortal: Ending = { signal: async () => true, hasEndedWithin: async () => false };
  await expect(ends.kill(immortal)).rejects.toThrow("had not ended 30 s after SIGKILL");
});

test("a removal waits for its turn behind those that end", async () => {
  const containers = createContainers();
  const ends = createEnds({ atOnce: 1 });
  const ending = ends.kill(containers.make());
  let isRemoved = false;
  const removing = ends.remove(async () => {
    isRemoved = true;
    return "removed";
  });
  await new Promise(setImmediate);
  expect(isRemoved).toBe(false);
  await containers.endOldest();
  expect(await removing).toBe("removed");
  await ending;
});
