import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openLocalBus } from "@sandgate/kit/bus.local";
import { createLogger } from "@sandgate/kit/logging";
import { createMetrics } from "@sandgate/kit/metrics";
import { describeEventBus, policyUnderTest } from "./event-bus.ts";

describeEventBus("local", async () => {
  const folder = await mkdtemp(join(tmpdir(), "sandgate-bus-"));
  const options = {
    file: join(folder, "events.sqlite"),
    logger: createLogger({ service: "test", level: "silent" }),
    metrics: createMetrics(),
    policy: policyUnderTest,
  };
  return {
    open: () => openLocalBus(options),
    wipe: async () => {
      for (const suffix of ["", "-wal", "-shm"]) await rm(options.file + suffix, { force: true });
    },
    remove: () => rm(folder, { recursive: true }),
  };
});
