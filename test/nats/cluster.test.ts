import { type JetStreamManager, jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import type { EventBus } from "@sandgate/kit/events/bus";
import { findNatsServer, startNatsCluster, type TestNats } from "@sandgate/test-support/nats";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { eventOf, openBus } from "./notes.ts";

describe.runIf(await requireServer("nats", findNatsServer))("a cluster of three", { timeout: 300_000 }, () => {
  let servers: TestNats[];
  let bus: EventBus;

  beforeEach(async () => {
    servers = await startNatsCluster();
    bus = await openBus({ url: servers.map(({ url }) => url).join(",") });
  });
  afterEach(async () => {
    await bus?.close();
    await Promise.all(servers.map((server) => server.stop()));
  });

  test("streams and consumers have three replicas, and the loss of any one server loses nothing", async () => {
    const seen = new Set<string>();
    await bus.consume({
      consumer: "listener",
      subjects: ["sandgate.test.>"],
      handle: async ({ entityId }) => void seen.add(entityId),
    });
    await until(() => bus.publish([eventOf("first")]));
    const connection = await connect({ servers: servers.map(({ url }) => url) });
    const jsm = await jetstreamManager(connection);
    for (const name of ["SANDGATE", "SANDGATE_PARKED"]) {
      expect((await jsm.streams.info(name)).config.num_replicas).toBe(3);
    }
    const identity = await bus.identity();
    const published = ["first"];
    for (const [index, server] of servers.entries()) {
      await until(() => expectReplicated(jsm));
      await server.kill();
      for (let number = 0; number < 50; number++) {
        const entity = `${index}-${number}`;
        const event = eventOf(entity);
        // As the relay does: the same event again until it is stored.
        await until(() => bus.publish([event]));
        published.push(entity);
      }
      await until(() => expect(seen.size).toBe(published.length));
      await server.start();
    }
    expect([...seen].toSorted()).toEqual(published.toSorted());
    expect(await bus.identity()).toBe(identity);
    await connection.close();
  });
});

/**
 * A server that was killed before it had anything of a new stream or consumer comes back without a log, and since
 * nats-server 2.12 its vote then counts only beside those of all others: with one more lost, the two that are left
 * can't elect a leader.
 */
async function expectReplicated(jsm: JetStreamManager): Promise<void> {
  // A consumer without a leader is left out of the list.
  const consumers = await jsm.consumers.list("SANDGATE").next();
  expect(consumers).toHaveLength(1);
  for (const { cluster } of [await jsm.streams.info("SANDGATE"), ...consumers]) {
    expect(cluster?.replicas?.filter((replica) => replica.current && !replica.offline)).toHaveLength(2);
  }
}
