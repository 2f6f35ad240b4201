import { rm } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics, printMetrics } from "@sandgate/kit/base/metrics";
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

test("an event is delivered though the clock was set back after it was published", async ({ folder }) => {
  const policy = policyUnderTest;
  const bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics: createMetrics(), policy });
  const now = Date.now;
  // The database's thread, which stores when an event is due, has a clock of its own.
  const clock = vi.spyOn(Date, "now").mockImplementation(() => now() - 3_600_000);
  try {
    const handled: string[] = [];
    const handle = async ({ entityId }: { entityId: string }) => void handled.push(entityId);
    await bus.consume({ consumer: "test", subjects: ["sandgate.test.>"], handle });
    await bus.publish([eventOf({ entity: "e1" })]);
    await expect.poll(() => handled).toEqual(["e1"]);
  } finally {
    clock.mockRestore();
    await bus.close();
  }
});

test("a dead letter ends after 90 days, and no other does", async ({ folder }) => {
  const file = join(folder, "events.sqlite");
  const metrics = createMetrics();
  const open = () => openLocalBus({ file, logger, metrics, policy: { ...policyUnderTest, attempts: 1 } });
  const bus = await open();
  await bus.consume({
    consumer: "test",
    subjects: ["sandgate.test.>"],
    handle: () => Promise.reject(new Error("never")),
  });
  const [old, recent] = [eventOf({ entity: "old" }), eventOf({ entity: "recent" })];
  await bus.publish([old, recent]);
  await expect.poll(async () => (await bus.deadLetters.list({ limit: 10 })).length).toBe(2);
  await bus.close();
  const database = new DatabaseSync(file);
  const age = database.prepare("UPDATE dead_letters SET failed_at = failed_at - ? WHERE event_id = ?");
  age.run(91 * 86_400_000, old.id);
  age.run(89 * 86_400_000, recent.id);
  database.close();

  const reopened = await open();
  const ids = async () => (await reopened.deadLetters.list({ limit: 10 })).map(({ id }) => id);
  await expect.poll(ids).toEqual([`test.${recent.id}`]);
  await expect
    .poll(() => metrics.getSingleMetricAsString("sandgate_bus_dead_letters"))
    .toContain('{consumer="test"} 1');
  await reopened.close();
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

test("kept events reach a new consumer batch by batch, also when it is restarted with other subjects meanwhile", async ({
  folder,
}) => {
  const options = { file: join(folder, "events.sqlite"), logger, metrics: createMetrics(), policy: policyUnderTest };
  const subjects = ["sandgate.test.thing.changed.v1", "sandgate.test.thing.made.v1", "sandgate.test.thing.gone.v1"];
  const [changed = "", made = "", gone = ""] = subjects;
  let bus = await openLocalBus(options);
  const published = Array.from({ length: 3 * 600 }, (_, number) =>
    eventOf({ entity: `${number}`, subject: subjects[number % 3] ?? "" }),
  );
  await bus.publish(published);
  const seen = new Set<string>();
  const consume = (wanted: string[]) =>
    bus.consume({
      consumer: "test",
      subjects: wanted,
      async handle({ eventId }) {
        seen.add(eventId);
      },
    });
  await consume([changed, gone]);
  await bus.close();
  bus = await openLocalBus(options);
  await consume([changed, made]);
  const wanted = published.filter(({ subject }) => subject !== gone).map(({ id }) => id);
  await expect.poll(() => wanted.filter((id) => !seen.has(id)).length).toBe(0);
  const last = eventOf({ entity: "last", subject: made });
  await bus.publish([eventOf({ entity: "not wanted", subject: gone }), last]);
  await expect.poll(() => seen.has(last.id)).toBe(true);
  // What it wanted at first it may have had before it was stopped.
  const others = [...seen].filter((id) => !wanted.includes(id) && id !== last.id);
  expect(others.length).toBeLessThan(600);
  await bus.close();
});

test("dead letters of an earlier version stay", async ({ folder }) => {
  const options = { file: join(folder, "events.sqlite"), logger, metrics: createMetrics(), policy: policyUnderTest };
  const bus = await openLocalBus(options);
  await bus.consume({ consumer: "test", subjects: ["sandgate.>"], handle: async () => undefined });
  await bus.close();
  const event = eventOf({ entity: "a" });
  const earlier = new DatabaseSync(options.file);
  earlier.exec(`DROP TABLE fills; DROP TABLE dead_letters; ALTER TABLE consumers DROP COLUMN dead_letters;
    DROP INDEX deliveries_due; ALTER TABLE deliveries ADD COLUMN error TEXT; ALTER TABLE deliveries ADD COLUMN parked_at INTEGER;
    CREATE INDEX deliveries_due ON deliveries (consumer, due_at) WHERE parked_at IS NULL;
    DELETE FROM kit_migrations WHERE scope = 'service' AND version > 1`);
  earlier
    .prepare("INSERT INTO messages (event_id, subject, bytes, published_at) VALUES (?, ?, ?, 0)")
    .run(event.id, event.subject, event.bytes);
  const failedAt = new Date();
  earlier.prepare("INSERT INTO deliveries SELECT 'test', seq, 4, 0, 'broken', ? FROM messages").run(failedAt.getTime());
  earlier.close();
  const migrated = await openLocalBus(options);
  expect(await migrated.deadLetters.list({ limit: 10 })).toMatchObject([
    { id: `test.${event.id}`, consumer: "test", attempts: 4, error: "broken", failedAt },
  ]);
  expect(await printMetrics([options.metrics], options.logger)).toContain(
    'sandgate_bus_dead_letters{consumer="test"} 1',
  );
  const handled: string[] = [];
  await migrated.consume({
    consumer: "test",
    subjects: ["sandgate.>"],
    async handle({ eventId }) {
      handled.push(eventId);
    },
  });
  expect(await migrated.deadLetters.replay(`test.${event.id}`)).toBe(true);
  expect(handled).toEqual([event.id]);
  expect(await printMetrics([options.metrics], options.logger)).toContain(
    'sandgate_bus_dead_letters{consumer="test"} 0',
  );
  await migrated.close();
});
