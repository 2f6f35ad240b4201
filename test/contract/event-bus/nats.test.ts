import { setTimeout as delay } from "node:timers/promises";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openNatsBus } from "@sandgate/kit/events/bus.nats";
import { deadLetterStream, eventStream } from "@sandgate/kit/events/bus.nats-streams";
import { findNatsServer, probeNats, startNats, useNats } from "@sandgate/test-support/nats";
import { requireServer } from "@sandgate/test-support/require";
import { describe, expect, test } from "vitest";
import { describeEventBus } from "./event-bus.ts";
import { eventOf, policyUnderTest } from "./session.ts";

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

test.runIf(await requireServer("nats", findNatsServer))(
  "a consumption stops although NATS dies meanwhile",
  async () => {
    const server = await startNats();
    const bus = await openNatsBus({
      url: server.url,
      service: "test",
      logger: createLogger({ service: "test", level: "silent" }),
      metrics: createMetrics(),
    });
    const seen = Promise.withResolvers<void>();
    const consumption = await bus.consume({
      consumer: "test",
      subjects: ["sandgate.>"],
      handle: async () => seen.resolve(),
    });
    await bus.publish([eventOf({ entity: "a" })]);
    await seen.promise;
    await server.pause();
    const stopped = consumption.stop();
    await delay(200);
    await server.kill();
    await expect(stopped).resolves.toBeUndefined();
    await bus.close();
    await server.stop();
  },
);
