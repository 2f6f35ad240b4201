import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openNatsBus } from "@sandgate/kit/events/bus.nats";
import { deadLetterStream, eventStream } from "@sandgate/kit/events/bus.nats-streams";
import { probeNats, useNats } from "@sandgate/test-support/nats";
import { requireServer } from "@sandgate/test-support/require";
import { describe } from "vitest";
import { describeEventBus } from "./event-bus.ts";
import { policyUnderTest } from "./session.ts";

describe.runIf(await requireServer("nats", probeNats))("NATS", () => {
  describeEventBus("nats", async () => {
    const server = await useNats({ streams: [deadLetterStream, eventStream] });
    return {
      open: () =>
        openNatsBus({
          url: server.url,
          service: "test",
          logger: createLogger({ service: "test", level: "silent" }),
          metrics: createMetrics(),
          policy: { ...policyUnderTest, ackWaitMs: 5_000 },
        }),
      wipe: () => server.wipe(),
      remove: () => server.stop(),
    };
  });
});
