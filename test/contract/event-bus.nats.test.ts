import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openNatsBus } from "@sandgate/kit/events/bus.nats";
import { describe } from "vitest";
import { probeNats, useNats } from "../support/nats.ts";
import { requireServer } from "../support/require.ts";
import { describeEventBus, policyUnderTest } from "./event-bus.ts";

describe.runIf(await requireServer("nats", probeNats))("NATS", () => {
  describeEventBus("nats", async () => {
    const server = await useNats();
    return {
      open: () =>
        openNatsBus({
          url: server.url,
          service: "test",
          logger: createLogger({ service: "test", level: "silent" }),
          metrics: createMetrics(),
          policy: { ...policyUnderTest, ackWaitMs: 2_000 },
        }),
      wipe: () => server.wipe(),
      remove: () => server.stop(),
    };
  });
});
