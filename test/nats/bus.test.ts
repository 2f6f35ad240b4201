import { cp } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect, millis, type NatsConnection } from "@nats-io/transport-node";
import { createLogger, type Logger } from "@sandgate/kit/base/logging";
import { createMetrics, type Metrics } from "@sandgate/kit/base/metrics";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { NatsDeliveryPolicy } from "@sandgate/kit/events/bus.nats-consumption";
import { deadLetterStream } from "@sandgate/kit/events/bus.nats-streams";
import { startRelay } from "@sandgate/kit/events/relay";
import { deleteStream, findNatsServer, startNats, type TestNats } from "@sandgate/test-support/nats";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { eventOf, logger, type Notes, openBus, openNotes, policy } from "./notes.ts";

vi.setConfig({ testTimeout: 300_000 });

describe.runIf(await requireServer("nats", findNatsServer))("the bus on a real nats-server", () => {
  let server: TestNats;
  let buses: EventBus[];
  let operator: NatsConnection | undefined;

  beforeEach(async () => {
    server = await startNats();
    buses = [];
  });
  afterEach(async () => {
    await Promise.all(buses.map((bus) => bus.close()));
    await operator?.close();
    operator = undefined;
    await server.stop();
  });

  const join = async (
    o: { metrics?: Metrics; policy?: Partial<NatsDeliveryPolicy>; logger?: Logger } = {},
  ): Promise<EventBus> => {
    const bus = await openBus({ url: server.url, ...o });
    buses.push(bus);
    return bus;
  };
  /** Connects to the server without the bus. */
  const operate = async () => {
    operator = await connect({ servers: server.url });
    return jetstreamManager(operator);
  };
  const consumeInto = (bus: EventBus, seen: string[]) =>
    bus.consume({
      consumer: "listener",
      subjects: ["sandgate.test.>"],
      handle: async ({ entityId }) => void seen.push(entityId),
    });

  test("what was published before a crash of the server is kept, and consumers reconnect by themselves", async () => {
    const bus = await join();
    const seen: string[] = [];
    await consumeInto(bus, seen);
    await bus.publish([eventOf("before")]);
    await until(() => expect(seen).toEqual(["before"]));
    const identity = await bus.identity();
    await server.kill();
    await expect(bus.publish([eventOf("lost")])).rejects.toThrow("NATS");
    await server.start();
    await until(async () => expect(await bus.identity()).toBe(identity));
    await until(() => bus.publish([eventOf("after")]));
    await until(() => expect(seen).toContain("after"));
    expect(seen).toEqual(["before", "after"]);
  });

  test("publishing to a server that hangs fails with a reason, and everything goes on afterwards", async () => {
    const metrics = createMetrics();
    const untilUnreached = (consumers: number) =>
      until(async () => expect(await metrics.metrics()).toContain(`\nsandgate_bus_unreached_consumers ${consumers}\n`));
    const bus = await join({ metrics });
    const seen: string[] = [];
    await consumeInto(bus, seen);
    await bus.publish([eventOf("before")]);
    await until(() => expect(seen).toEqual(["before"]));
    const event = eventOf("during");
    await untilUnreached(0);
    await server.pause();
    try {
      await expect(bus.publish([event])).rejects.toThrow("NATS did not store an event: TimeoutError: timeout");
      await untilUnreached(1);
    } finally {
      server.resume();
    }
    await until(() => bus.publish([event]));
    await bus.publish([eventOf("after")]);
    await until(() => expect(seen.toSorted()).toEqual(["after", "before", "during"]));
    await untilUnreached(0);
  });

  test("signals arrive again once the server is back", async () => {
    const bus = await join();
    const heard: string[] = [];
    bus.watch("topic", (body) => heard.push(body));
    await server.kill();
    bus.signal("topic", "lost");
    await server.start();
    await until(() => {
      bus.signal("topic", "a");
      expect(heard).toContain("a");
    });
    expect(heard).not.toContain("lost");
  });

  test("a stream that is deleted meanwhile is created again, with its consumers", async () => {
    const bus = await join();
    const seen: string[] = [];
    await consumeInto(bus, seen);
    await bus.publish([eventOf("before")]);
    await until(() => expect(seen).toEqual(["before"]));
    const identity = await bus.identity();
    await deleteStream(await operate(), "SANDGATE");
    await bus.publish([eventOf("after")]);
    await until(() => expect(seen).toEqual(["before", "after"]));
    expect(await bus.identity()).not.toBe(identity);
  });

  test("replicas share a consumer, and another takes over the events of one that dies", async () => {
    const jsm = await operate();
    const [first, second] = [await join(), await join()];
    const shares: string[][] = [[], []];
    await consumeInto(first, shares[0] ?? []);
    await until(() => jsm.consumers.info("SANDGATE", "listener~sandgate~test~ALL"));
    // It takes events and never acknowledges them, as a killed process does.
    const dead = await jsm.jetstream().consumers.get("SANDGATE", "listener~sandgate~test~ALL");
    const taking = await dead.fetch({ max_messages: 5, expires: 1_000 });
    await consumeInto(second, shares[1] ?? []);
    const events = Array.from({ length: 200 }, (_, number) => eventOf(`${number}`));
    await first.publish(events);
    const taken: number[] = [];
    for await (const { seq } of taking) taken.push(seq);
    expect(taken).not.toEqual([]);
    await until(() => expect(new Set(shares.flat()).size).toBe(200));
    expect(shares.flat()).toHaveLength(200);
    for (const share of shares) expect(share).not.toEqual([]);
  });

  test("an event that is being handled is not redelivered, however long that takes", async () => {
    const slow = { handlerTimeoutMs: 30_000 };
    const buses = [await join({ policy: slow }), await join({ policy: slow })];
    let attempts = 0;
    for (const bus of buses) {
      await bus.consume({
        consumer: "slow",
        subjects: ["sandgate.test.>"],
        handle: async () => {
          attempts++;
          await delay(1.5 * policy.ackWaitMs);
        },
      });
    }
    const jsm = await operate();
    await buses[0]?.publish([eventOf("slow")]);
    await until(async () => {
      const info = await jsm.consumers.info("SANDGATE", "slow~sandgate~test~ALL");
      expect(info.ack_floor.stream_seq).toBe(1);
    });
    expect(attempts).toBe(1);
  });

  test("poison becomes a dead letter that is counted and listed, also after the server's restart; so does what is no event", async () => {
    const metrics = createMetrics();
    const bus = await join({ metrics });
    await bus.consume({
      consumer: "listener",
      subjects: ["sandgate.test.>"],
      handle: async () => {
        throw new Error("line one\nline two: ü");
      },
    });
    await bus.publish([eventOf("poison"), { ...eventOf("none"), id: "none", bytes: Buffer.from("no event") }]);
    await until(async () => expect(await bus.deadLetters.list({ limit: 10 })).toHaveLength(2));
    await until(async () =>
      expect(await metrics.metrics()).toContain('sandgate_bus_dead_letters{consumer="listener"} 2'),
    );
    await server.kill();
    await server.start();
    await until(async () => expect(await bus.deadLetters.list({ limit: 10 })).toHaveLength(2));
    const letters = (await bus.deadLetters.list({ limit: 10 })).toSorted((a, b) =>
      a.event.entityId.localeCompare(b.event.entityId),
    );
    expect(letters).toMatchObject([
      { event: { eventId: "none", subject: "sandgate.test.note.added.v1" }, attempts: policy.attempts },
      { event: { entityId: "poison" }, attempts: policy.attempts, error: "line one\nline two: ü" },
    ]);
  });

  test("dead letters end after 90 days, also in a stream that was made without that", async () => {
    const ageDays = async () => {
      const { config } = await (await operate()).streams.info(deadLetterStream);
      await operator?.close();
      return millis(config.max_age) / 86_400_000;
    };
    await consumeInto(await join(), []);
    await until(async () => expect(await ageDays()).toBe(90));
    await (await operate()).streams.update(deadLetterStream, { max_age: 0 });
    await operator?.close();
    expect(await ageDays()).toBe(0);
    await consumeInto(await join(), []);
    await until(async () => expect(await ageDays()).toBe(90));
  });

  test("an event on another subject, or under another id, than it says reaches no handler and becomes a dead letter", async () => {
    const bus = await join();
    const seen: string[] = [];
    await consumeInto(bus, seen);
    const [subject, id] = [eventOf("subject", "sandgate.other.note.added.v1"), eventOf("id")];
    await bus.publish([
      { ...subject, subject: "sandgate.test.note.added.v1" },
      { ...id, id: "another one" },
    ]);
    await until(async () => expect(await bus.deadLetters.list({ limit: 10 })).toHaveLength(2));
    const letters = (await bus.deadLetters.list({ limit: 10 })).toSorted((a, b) =>
      a.event.entityId.localeCompare(b.event.entityId),
    );
    expect(letters.map(({ error }) => error)).toEqual([
      `the event ${id.id} was published as another one`,
      "an event of sandgate.other.note.added.v1 was published on sandgate.test.note.added.v1",
    ]);
    for (const { id, error } of letters) await expect(bus.deadLetters.replay(id)).rejects.toThrow(error);
    expect(seen).toEqual([]);
    // An operator may publish an event again without an id for the server.
    const again = eventOf("again");
    const jsm = await operate();
    await jsm.jetstream().publish(again.subject, again.bytes);
    await until(() => expect(seen).toEqual(["again"]));
  });

  test("a version with other settings takes over a consumer; the previous one keeps consuming and leaves them", async () => {
    const lines: string[] = [];
    const log = createLogger({ service: "test" }, { write: (line) => void lines.push(line) });
    const [before, after] = [await join({ logger: log }), await join({ policy: { ackWaitMs: 8_000 } })];
    const seen: string[] = [];
    const jsm = await operate();
    const ackWait = async () =>
      millis((await jsm.consumers.info("SANDGATE", "listener~sandgate~test~ALL")).config.ack_wait ?? 0);
    await consumeInto(before, seen);
    await until(async () => expect(await ackWait()).toBe(policy.ackWaitMs));
    await consumeInto(after, seen);
    await until(async () => expect(await ackWait()).toBe(8_000));
    await after.publish([eventOf("updated")]);
    await until(() => expect(seen).toEqual(["updated"]));
    await server.kill();
    await server.start();
    await until(() => after.publish([eventOf("restarted")]));
    await until(() => expect(seen).toEqual(["updated", "restarted"]));
    await until(() => expect(lines.join()).toContain("whose settings differ"));
    await until(async () => expect(await ackWait()).toBe(8_000));
  });

  test("a server that is wiped repeatedly under load: every event takes effect exactly once", async () => {
    const [sender, receiver]: Notes[] = [await openNotes(), await openNotes()];
    if (!sender || !receiver) throw new Error("no databases");
    const bus = await join();
    const other = await join();
    const relay = startRelay({ outbox: sender.database.outbox, bus, logger, metrics: createMetrics() });
    const listeners = await Promise.all(
      [bus, other].map((each) =>
        each.consume({
          consumer: "listener",
          subjects: ["sandgate.test.>"],
          handle: async ({ entityId }) => receiver.database.write.noteEffect(entityId),
        }),
      ),
    );
    const notes: string[] = [];
    let isLoading = true;
    const loading = (async () => {
      while (isLoading) {
        const batch = Array.from({ length: 10 }, (_, number) => `${notes.length + number}`);
        await Promise.all(batch.map((note) => sender.database.write.addNote(note, eventOf(note))));
        notes.push(...batch);
        // Faster than one consumer makes effects would only make the test long.
        await delay(20);
      }
    })();
    for (let wipe = 1; wipe <= 3; wipe++) {
      const effects = receiver.effects().length;
      await until(() => expect(receiver.effects().length).toBeGreaterThan(effects + 50));
      await server.kill();
      await server.wipe();
      await server.start();
    }
    isLoading = false;
    await loading;
    await until(() => expect(new Set(receiver.effects()).size).toBe(notes.length));
    await until(async () => expect((await sender.database.outbox.backlog()).unsent).toBe(0));
    expect(receiver.effects()).toHaveLength(notes.length);
    await relay.stop();
    await Promise.all(listeners.map((listener) => listener.stop()));
    await Promise.all([sender, receiver].map((each) => each.remove()));
  });

  test("a server that comes back with an old copy of its storage gets what it lost again", async () => {
    const sender = await openNotes();
    const bus = await join();
    const seen: string[] = [];
    await consumeInto(bus, seen);
    const relay = startRelay({ outbox: sender.database.outbox, bus, logger, metrics: createMetrics() });
    const add = (note: string) => sender.database.write.addNote(note, eventOf(note));
    await add("kept");
    await until(() => expect(seen).toEqual(["kept"]));
    const identity = await bus.identity();
    await server.kill();
    await cp(server.storageFolder, `${server.storageFolder}-copy`, { recursive: true });
    await server.start();
    await add("lost");
    await until(() => expect(seen).toContain("lost"));
    await server.kill();
    await server.wipe();
    await cp(`${server.storageFolder}-copy`, server.storageFolder, { recursive: true });
    await server.start();
    await until(() => expect(seen.filter((note) => note === "lost")).toHaveLength(2));
    expect(await bus.identity()).not.toBe(identity);
    await relay.stop();
    await sender.remove();
  });
});
