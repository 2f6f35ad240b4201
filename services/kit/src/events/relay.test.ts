import { join } from "node:path";
import { ErrorNoteSchema } from "@sandgate/proto/common/v1/error";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { pino } from "pino";
import { afterEach, expect, vi } from "vitest";
import { createMetrics } from "../base/metrics.ts";
import { migrations, type transactions } from "../storage/sqlite.fixture.ts";
import { openSqlite, type SqliteDatabase } from "../storage/sqlite.ts";
import { openLocalBus } from "./bus.local.ts";
import type { EventBus } from "./bus.ts";
import { type OutboxStore, type StagedEvent, stageEvent } from "./outbox.ts";
import { type Relay, startRelay } from "./relay.ts";

const logger = pino({ enabled: false });
const metrics = createMetrics();
let folder: string;
let database: SqliteDatabase<typeof transactions>;
let buses: EventBus[];
let relays: Relay[];

test.beforeEach(async ({ folder: own }) => {
  folder = own;
  database = await openSqlite({
    file: join(folder, "notes.sqlite"),
    migrations,
    transactions: new URL("../storage/sqlite.fixture.ts", import.meta.url),
    logger,
  });
  buses = [];
  relays = [];
});
afterEach(async () => {
  await Promise.all(relays.map((relay) => relay.stop()));
  await Promise.all(buses.map((bus) => bus.close()));
  await database.close();
});

/** A bus and the ids of the events that one consumer of it has handled. */
async function openBus(name: string): Promise<{ bus: EventBus; handled: string[] }> {
  const bus = await openLocalBus({ file: join(folder, `${name}.sqlite`), logger, metrics });
  buses.push(bus);
  const handled: string[] = [];
  await bus.consume({
    consumer: "test",
    subjects: ["sandgate.>"],
    handle: async ({ eventId }) => {
      handled.push(eventId);
    },
  });
  return { bus, handled };
}

function relayTo(bus: EventBus): Relay {
  const relay = startRelay({ outbox: database.outbox, bus, logger, metrics });
  relays.push(relay);
  return relay;
}

function eventOf(id: string): StagedEvent {
  return stageEvent({
    subject: "sandgate.test.note.added.v1",
    entityId: id,
    entityVersion: 1,
    schema: ErrorNoteSchema,
    payload: { hint: id },
  });
}

async function addNote(id: string): Promise<string> {
  const event = eventOf(id);
  await database.write.addNote(id, { events: [event] });
  return event.id;
}

const unsentIds = async () =>
  database.read.all<{ id: string }>("SELECT id FROM kit_outbox WHERE sent_at IS NULL").map(({ id }) => id);

test("what was staged before the start and what is committed later is published once", async () => {
  const ids = await Promise.all(Array.from({ length: 200 }, (_, number) => addNote(`before ${number}`)));
  const { bus, handled } = await openBus("bus");
  relayTo(bus);
  await until(() => expect(new Set(handled)).toEqual(new Set(ids)));
  ids.push(await addNote("after"));
  await until(() => expect(handled.toSorted()).toEqual(ids.toSorted()));
  await until(async () => expect(await unsentIds()).toEqual([]));
});

test("an event of a transaction that was undone is never published", async () => {
  const { bus, handled } = await openBus("bus");
  relayTo(bus);
  await addNote("twice");
  await expect(addNote("twice")).rejects.toThrow();
  const last = await addNote("last");
  await until(() => expect(handled).toContain(last));
  expect(handled).toHaveLength(2);
});

test("a recreated bus gets the kept events again", async () => {
  const ids = [await addNote("one"), await addNote("two")];
  const first = await openBus("first");
  const relay = relayTo(first.bus);
  await until(async () => expect(await unsentIds()).toEqual([]));
  await relay.stop();
  const second = await openBus("second");
  relayTo(second.bus);
  await until(() => expect(second.handled.toSorted()).toEqual(ids.toSorted()));
});

test("a bus that comes back is served, without a new commit", async () => {
  const { bus, handled } = await openBus("bus");
  let isDown = true;
  relayTo({
    ...bus,
    publish: (events) => (isDown ? Promise.reject(new Error("the bus is down")) : bus.publish(events)),
  });
  const id = await addNote("one");
  await until(async () =>
    expect(await metrics.metrics()).toMatch(/sandgate_outbox_unsent_events\{database="notes"\} 1/),
  );
  expect(handled).toEqual([]);
  isDown = false;
  await until(() => expect(handled).toEqual([id]));
  await until(async () =>
    expect(await metrics.metrics()).toMatch(/sandgate_outbox_unsent_events\{database="notes"\} 0/),
  );
});

test("an event that the bus refuses holds up no other", async () => {
  const { bus, handled } = await openBus("bus");
  const refused = await addNote("refused");
  const good = [await addNote("good"), await addNote("fine")];
  const refuse = (events: readonly StagedEvent[]) =>
    events.some(({ id }) => id === refused) ? Promise.reject(new Error("too large")) : bus.publish(events);
  relayTo({ ...bus, publish: refuse });
  await until(() => expect(handled.toSorted()).toEqual(good.toSorted()));
  await until(async () => expect(await unsentIds()).toEqual([refused]));
});

test("no number of events that the bus refuses holds up another, and they are published once it takes them", async () => {
  const { bus, handled } = await openBus("bus");
  const poison = new Set(await Promise.all(Array.from({ length: 300 }, (_, number) => addNote(`poison ${number}`))));
  const tries = new Map<string, number>();
  let isRefusing = true;
  const publish = async (events: readonly StagedEvent[]) => {
    if (events.length === 1) for (const { id } of events) tries.set(id, (tries.get(id) ?? 0) + 1);
    if (isRefusing && events.some(({ id }) => poison.has(id))) throw new Error("too large");
    await bus.publish(events);
  };
  relayTo({ ...bus, publish });
  const good = await addNote("good");
  await until(() => expect(handled).toEqual([good]));
  await until(async () =>
    expect(await metrics.metrics()).toMatch(/sandgate_outbox_refused_events\{database="notes"\} 300/),
  );
  const later = await addNote("later");
  await until(() => expect(handled).toEqual([good, later]));
  // With a delay that grows.
  expect(Math.max(...tries.values())).toBeLessThan(12);
  isRefusing = false;
  await until(async () => expect(await unsentIds()).toEqual([]));
  await until(() => expect(new Set(handled)).toEqual(new Set([...poison, good, later])));
  await until(async () =>
    expect(await metrics.metrics()).toMatch(/sandgate_outbox_refused_events\{database="notes"\} 0/),
  );
});

test("a bus that is away has refused nothing", async () => {
  const { bus, handled } = await openBus("bus");
  let isAway = true;
  const away = () => Promise.reject(new Error("no connection"));
  let asked = 0;
  relayTo({
    ...bus,
    // It goes away between the lead and what is published.
    identity: () => (isAway && ++asked > 2 ? away() : bus.identity()),
    publish: (events) => (isAway ? away() : bus.publish(events)),
  });
  const id = await addNote("one");
  await until(() => expect(asked).toBeGreaterThan(3));
  expect(await database.outbox.backlog()).toMatchObject({ unsent: 1, refused: 0 });
  isAway = false;
  await until(() => expect(handled).toEqual([id]));
});

test("one relay of several publishes, and another goes on when it stops", async () => {
  const { bus } = await openBus("bus");
  const published: string[] = [];
  const watched = (name: string): EventBus => ({
    ...bus,
    publish: async (events) => {
      published.push(name);
      await bus.publish(events);
    },
  });
  const first = relayTo(watched("first"));
  await addNote("one");
  await until(async () => expect(await unsentIds()).toEqual([]));
  relayTo(watched("second"));
  await addNote("two");
  await until(async () => expect(await unsentIds()).toEqual([]));
  expect(published).toEqual(["first", "first"]);
  await first.stop();
  await addNote("three");
  await until(async () => expect(await unsentIds()).toEqual([]));
  expect(published).toEqual(["first", "first", "second"]);
});

test("a relay that can't reach the bus lets another publish, and takes no lead before it can", async () => {
  const { bus, handled } = await openBus("bus");
  const away = () => Promise.reject(new Error("no connection"));
  let isAway = false;
  relayTo({ ...bus, identity: () => (isAway ? away() : bus.identity()) });
  const first = await addNote("first");
  await until(() => expect(handled).toEqual([first]));
  isAway = true;
  const second = await addNote("second");
  await until(async () => expect(await database.leases.listFree(["kit.relay"])).toEqual(["kit.relay"]));
  let leads = 0;
  const outbox: OutboxStore = {
    ...database.outbox,
    lead(holder, ttlMs) {
      leads += 1;
      return database.outbox.lead(holder, ttlMs);
    },
  };
  let asked = 0;
  const identity = () => {
    asked += 1;
    return away();
  };
  relays.push(startRelay({ outbox, bus: { ...bus, identity }, logger, metrics }));
  await until(() => expect(asked).toBeGreaterThan(1));
  relayTo(bus);
  await until(() => expect(handled).toEqual([first, second]));
  expect(leads).toBe(0);
});

test("what a relay that lost the lead records late as sent to an older bus is sent to the current one", async () => {
  const [older, today] = [await openBus("older"), await openBus("today")];
  const { outbox } = database;
  const published = Promise.withResolvers<void>();
  const late = Promise.withResolvers<void>();
  const deposed = startRelay({
    outbox: {
      ...outbox,
      lead: (holder) => outbox.lead(holder, 1),
      async markSent(ids, identity) {
        published.resolve();
        await late.promise;
        await outbox.markSent(ids, identity);
      },
    },
    bus: older.bus,
    logger,
    metrics,
  });
  const id = await addNote("late");
  await published.promise;
  const followed = Promise.withResolvers<void>();
  const recorded = Promise.withResolvers<void>();
  relays.push(
    startRelay({
      outbox: {
        ...outbox,
        async unsent(limit) {
          followed.resolve();
          await recorded.promise;
          return outbox.unsent(limit);
        },
      },
      bus: today.bus,
      logger,
      metrics,
    }),
  );
  await followed.promise;
  const stopped = deposed.stop();
  late.resolve();
  await stopped;
  expect(await unsentIds()).toEqual([]);
  recorded.resolve();
  const now = performance.now.bind(performance);
  const clock = vi.spyOn(performance, "now").mockImplementation(() => now() + 10_000);
  try {
    const next = await addNote("next");
    await until(() => expect(today.handled.toSorted()).toEqual([id, next].toSorted()));
  } finally {
    clock.mockRestore();
  }
});
