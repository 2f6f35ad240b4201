import { DatabaseSync } from "node:sqlite";
import fc from "fast-check";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { ReceivedEvent } from "./inbox.ts";
import { createConnection } from "./sqlite-connection.ts";
import { createTransaction, kitMigrations } from "./sqlite-kit.ts";
import type { Transaction } from "./transaction.ts";

let db: DatabaseSync;
let tx: Transaction;

beforeEach(() => {
  db = new DatabaseSync(":memory:");
  for (const sql of kitMigrations) db.exec(sql);
  tx = createTransaction(createConnection(db), () => undefined);
});
afterEach(() => db.close());

function received(
  entityId: string,
  entityVersion: number,
  subject = "sandgate.sandbox.sandbox.ready.v1",
): ReceivedEvent {
  return { eventId: `${subject}/${entityId}/${entityVersion}`, subject, entityId, entityVersion };
}

test("an event is new once per consumer", () => {
  const event = received("a", 1);
  expect(tx.firstTime("one", event)).toBe(true);
  expect(tx.firstTime("one", event)).toBe(false);
  expect(tx.firstTime("two", event)).toBe(true);
});

test("a version not above the last is old, under any event id", () => {
  expect(tx.firstTime("one", received("a", 5))).toBe(true);
  expect(tx.firstTime("one", { ...received("a", 5), eventId: "other" })).toBe(false);
  expect(tx.firstTime("one", received("a", 4))).toBe(false);
  expect(tx.firstTime("one", { ...received("a", 6), entityVersion: 6n })).toBe(true);
});

test("services number the same id on their own", () => {
  for (const service of ["sandbox", "telemetry"]) {
    expect(tx.firstTime("one", received("a", 1, `sandgate.${service}.workspace.workspace_purged.v1`))).toBe(true);
  }
});

test("any order and periodicTask ends with the newest version of every entity", () => {
  const deliveries = fc
    .uniqueArray(fc.tuple(fc.constantFrom("a", "b", "c"), fc.integer({ min: 1, max: 20 })), {
      minLength: 1,
      selector: ([entity, version]) => `${entity}${version}`,
    })
    .chain((events) =>
      fc.tuple(
        fc.constant(events),
        fc.shuffledSubarray([...events, ...events, ...events], { minLength: events.length * 3 }),
      ),
    );
  let run = 0;
  fc.assert(
    fc.property(deliveries, ([events, shuffled]) => {
      const consumer = `run ${run++}`;
      const applied = new Map<string, number>();
      for (const [entity, version] of shuffled) {
        if (tx.firstTime(consumer, received(entity, version))) applied.set(entity, version);
      }
      for (const entity of new Set(events.map(([name]) => name))) {
        const versions = events.filter(([name]) => name === entity).map(([, version]) => version);
        expect(applied.get(entity)).toBe(Math.max(...versions));
      }
    }),
  );
});
