import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import type { EventBus } from "@sandgate/kit/bus";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { findNatsServer, startNatsCluster, type TestNats } from "../support/nats.ts";
import { requireServer } from "../support/require.ts";
import { eventOf, openBus, until } from "./notes.ts";

/** On a busy machine the servers may vote more than once on who leads a consumer. */
const electedMs = 60_000;

describe.runIf(await requireServer("nats", findNatsServer))("a cluster of three", () => {
  let servers: TestNats[];
  let bus: EventBus;

  beforeAll(async () => {
    servers = await startNatsCluster();
    bus = await openBus({ url: servers.map(({ url }) => url).join(",") });
  });
  afterAll(async () => {
    await bus?.close();
    await Promise.all(servers.map((server) => server.stop()));
  });

  test("streams and consumers are on three servers, and the loss of any one loses nothing", async () => {
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
      await server.kill();
      for (let number = 0; number < 50; number++) {
        const entity = `${index}-${number}`;
        const event = eventOf(entity);
        // As the relay does: the same event again until it is stored.
        await until(() => bus.publish([event]));
        published.push(entity);
      }
      await until(() => expect(seen.size).toBe(published.length), electedMs);
      await server.start();
      await until(async () => {
        const { cluster } = await jsm.streams.info("SANDGATE");
        expect(cluster?.replicas?.filter((replica) => replica.current && !replica.offline)).toHaveLength(2);
      });
    }
    expect([...seen].toSorted()).toEqual(published.toSorted());
    expect(await bus.identity()).toBe(identity);
    await connection.close();
  }, 240_000);
});
