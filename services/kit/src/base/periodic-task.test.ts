import { expect, test } from "vitest";
import { createLogger } from "./logging.ts";
import { delayAfterFailures, startPeriodicTask } from "./periodic-task.ts";

const logger = createLogger({ service: "test", level: "silent" });

test("the work is done again, also after a failure, until it is stopped", async () => {
  let runs = 0;
  const third = Promise.withResolvers<void>();
  const periodicTask = startPeriodicTask({
    what: "count",
    everyMs: 0,
    logger,
    async work() {
      runs += 1;
      if (runs === 1) throw new Error("the first run fails");
      if (runs === 3) third.resolve();
    },
  });
  await third.promise;
  await periodicTask.stop();
  const stoppedAt = runs;
  await new Promise((resolve) => setImmediate(resolve));
  expect(runs).toBe(stoppedAt);
});

test("stopping aborts the run under way and waits for it", async () => {
  let ended = false;
  const periodicTask = startPeriodicTask({
    what: "wait",
    everyMs: 0,
    logger,
    async work(signal) {
      await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
      ended = true;
    },
  });
  await periodicTask.stop();
  expect(ended).toBe(true);
});

/** The level and message of each line logged so far. */
function createLog() {
  const lines: string[] = [];
  const write = (line: string) => {
    const { level, msg } = JSON.parse(line);
    lines.push(`${level}: ${msg}`);
  };
  return { lines, logger: createLogger({ service: "test" }, { write }) };
}

test("consecutive failures are logged once, and so is the recovery", async () => {
  const { lines, logger } = createLog();
  const outcomes = ["away", "away", "denied", undefined, "away", undefined, undefined];
  const done = Promise.withResolvers<void>();
  const periodicTask = startPeriodicTask({
    what: "count",
    everyMs: 0,
    logger,
    async work() {
      if (outcomes.length === 0) done.resolve();
      const outcome = outcomes.shift();
      if (outcome) throw new Error(outcome);
    },
  });
  await done.promise;
  await periodicTask.stop();
  const failed = "error: failed to count; will retry";
  const again = "info: able to count again";
  expect(lines).toEqual([failed, again, failed, again]);
});

test("a long run counts as healthy before its end", async () => {
  const { lines, logger } = createLog();
  let runs = 0;
  const working = Promise.withResolvers<void>();
  const periodicTask = startPeriodicTask({
    what: "watch",
    everyMs: 0,
    logger,
    async work(signal, markHealthy) {
      runs += 1;
      if (runs === 1) throw new Error("away");
      markHealthy();
      working.resolve();
      await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
    },
  });
  await working.promise;
  expect(lines).toEqual(["error: failed to watch; will retry", "info: able to watch again"]);
  await periodicTask.stop();
});

test("the delay grows while runs fail, up to 5 s, and is never shorter than asked for", () => {
  const delays = (random: number) =>
    [0, 1, 2, 3, 4, 50].map((failures) => delayAfterFailures(failures, 1_000, () => random));
  expect(delays(1)).toEqual([1_000, 1_000, 2_000, 4_000, 5_000, 5_000]);
  expect(delays(0)).toEqual([1_000, 1_000, 1_000, 2_000, 2_500, 2_500]);
  expect([0, 1, 2].map((failures) => delayAfterFailures(failures, 10_000))).toEqual([10_000, 10_000, 10_000]);
});
