import { expect, test } from "vitest";
import { createLogger } from "./logging.ts";
import { repeat } from "./repeat.ts";

const logger = createLogger({ service: "test", level: "silent" });

test("the work is done again, also after a failure, until it is stopped", async () => {
  let runs = 0;
  const third = Promise.withResolvers<void>();
  const repetition = repeat({
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
  await repetition.stop();
  const stoppedAt = runs;
  await new Promise((resolve) => setImmediate(resolve));
  expect(runs).toBe(stoppedAt);
});

test("stopping aborts the run under way and waits for it", async () => {
  let ended = false;
  const repetition = repeat({
    what: "wait",
    everyMs: 0,
    logger,
    async work(signal) {
      await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
      ended = true;
    },
  });
  await repetition.stop();
  expect(ended).toBe(true);
});
