import { rm } from "node:fs/promises";
import { join } from "node:path";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { test } from "@sandgate/test-support/test";
import { expect, vi } from "vitest";
import { describeEventBus } from "./event-bus.ts";
import { eventOf, policyUnderTest } from "./session.ts";

const logger = createLogger({ service: "test", level: "silent" });

describeEventBus("local", async () => {
  const { path: folder, remove } = await createTempFolder();
  const options = {
    file: join(folder, "events.sqlite"),
    logger,
    metrics: createMetrics(),
    policy: policyUnderTest,
  };
  return {
    open: () => openLocalBus(options),
    wipe: async () => {
      for (const suffix of ["", "-wal", "-shm"]) await rm(options.file + suffix, { force: true });
    },
    remove,
  };
});

test("an event that falls due while its consumer looks for what is due is not left waiting", async ({ folder }) => {
  const file = join(folder, "events.sqlite");
  const bus = await openLocalBus({
    file,
    logger,
    metrics: createMetrics(),
    policy: { ...policyUnderTest, attempts: 2 },
  });
  const now = Date.now;
  let calls = 0;
  // Each reading of the clock advances it by more than half of the delay after a failure.
  const clock = vi.spyOn(Date, "now").mockImplementation(() => now() + 6 * calls++);
  try {
    const handled: string[] = [];
    const failed = new Set<string>();
    await bus.consume({
      consumer: "test",
      subjects: ["sandgate.test.>"],
      async handle({ eventId }) {
        if (!failed.has(eventId)) {
          failed.add(eventId);
          throw new Error("once");
        }
        handled.push(eventId);
      },
    });
    for (let index = 0; index < 30; index++) {
      await bus.publish([eventOf({ entity: `${index}` })]);
      await expect.poll(() => handled.length, { interval: 5 }).toBe(index + 1);
    }
  } finally {
    clock.mockRestore();
    await bus.close();
  }
});
