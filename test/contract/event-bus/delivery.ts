import { toBinary } from "@bufbuild/protobuf";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { type Event, EventSchema } from "@sandgate/proto/common/v1/event";
import { until } from "@sandgate/test-support/until";
import fc from "fast-check";
import { expect, test } from "vitest";
import { type BusSession, entitiesOf, eventOf, policyUnderTest, someEvents } from "./session.ts";

/** What a bus promises about the delivery of events. */
export function testDelivery(session: BusSession): void {
  const { consumeInto, listDeadLetters, reopen } = session;

  test("an event arrives complete, at every consumer of its subject and at no other", async () => {
    const whole: Event[] = [];
    const other: string[] = [];
    const exact: string[] = [];
    await consumeInto([], { handle: async (event) => void whole.push(event) });
    await consumeInto(other, { consumer: "other", subjects: ["sandgate.test.*.created.v1", "sandgate.more.>"] });
    await consumeInto(exact, { consumer: "exact", subjects: ["sandgate.test.thing.changed.v1"] });
    const changed = eventOf({ entity: "a", version: 7 });
    const created = eventOf({ entity: "b", subject: "sandgate.test.thing.created.v1" });
    await session.bus.publish([changed, created]);
    await until(() => expect([whole.length, other.length, exact.length]).toEqual([2, 1, 1]));
    expect(whole.map((event) => toBinary(EventSchema, event))).toEqual(
      expect.arrayContaining([changed.bytes, created.bytes].map((bytes) => new Uint8Array(bytes))),
    );
    expect([other, exact]).toEqual([["b"], ["a"]]);
  });

  test("a new consumer starts with the oldest stored event", async () => {
    const events = someEvents(20);
    await session.bus.publish(events);
    const seen: string[] = [];
    await consumeInto(seen);
    await until(() => expect(new Set(seen)).toEqual(new Set(entitiesOf(events))));
  });

  test("a failed event comes again until it is handled, and holds up no other", async () => {
    let attempts = 0;
    const seen: string[] = [];
    await consumeInto(seen, {
      handle: async (event) => {
        if (event.entityId !== "0") return;
        attempts++;
        if (attempts < 3) throw new Error("not yet");
      },
    });
    const events = someEvents(20);
    await session.bus.publish(events);
    await until(() => expect(seen.toSorted()).toEqual(entitiesOf(events).toSorted()));
    expect(attempts).toBe(3);
  });

  test("a dependency that is away uses up no attempts, also through a restart, and the wait is visible", async () => {
    let isAway = true;
    let asked = 0;
    let failures = 0;
    const seen: string[] = [];
    const handle = async () => {
      asked++;
      if (isAway) throw new DomainError("UPSTREAM_ERROR", "The database is away.");
      // A restart may use up one attempt, which reaches no handler.
      if (++failures < policyUnderTest.attempts - 1) throw new Error("not yet");
    };
    await consumeInto(seen, { handle });
    await session.bus.publish([eventOf({ entity: "a" })]);
    await until(() => expect(asked).toBeGreaterThan(policyUnderTest.attempts + 1));
    expect(session.bus.consumers()).toBe("events wait for what their handlers depend on: test");
    await reopen();
    asked = 0;
    await consumeInto(seen, { handle });
    await until(() => expect(asked).toBeGreaterThan(0));
    isAway = false;
    await until(() => expect(seen).toEqual(["a"]));
    expect(await listDeadLetters()).toEqual([]);
    expect(session.bus.consumers()).toBe("ok");
  });

  test("a handler that hangs times out, and its event is delivered again", async () => {
    const seen: string[] = [];
    const release = Promise.withResolvers<void>();
    let attempts = 0;
    await consumeInto(seen, {
      handle: async (event) => {
        if (event.entityId === "stuck" && ++attempts === 1) await release.promise;
      },
    });
    await session.bus.publish([eventOf({ entity: "stuck" })]);
    await until(() => expect(seen).toEqual(["stuck"]));
    release.resolve();
  });

  test("an idempotent consumer ends with the newest version of every entity, whatever is reordered, repeated or fails", async () => {
    const changes = fc.uniqueArray(fc.tuple(fc.constantFrom("a", "b", "c"), fc.integer({ min: 1, max: 15 })), {
      minLength: 1,
      maxLength: 30,
      selector: ([entity, version]) => `${entity}${version}`,
    });
    const history = changes.chain((events) =>
      fc.tuple(
        fc.shuffledSubarray([...events, ...events], { minLength: events.length * 2 }),
        // Which deliveries fail, before their effect or after it.
        fc.infiniteStream(fc.constantFrom("before", "after", "no", "no", "no")),
        fc.nat(events.length),
      ),
    );
    let run = 0;
    await fc.assert(
      fc.asyncProperty(history, async ([order, failures, restartAt]) => {
        const kind = `run${run++}`;
        const applied = new Map<string, number>();
        const attempts = new Map<string, number>();
        const done = new Set<string>();
        const consume = () =>
          session.bus.consume({
            consumer: kind,
            subjects: [`sandgate.test.${kind}.>`],
            handle: async (event) => {
              const attempt = (attempts.get(event.eventId) ?? 0) + 1;
              attempts.set(event.eventId, attempt);
              // A restart may use up one more attempt, which reaches no handler.
              const failure: string = attempt < policyUnderTest.attempts - 1 ? failures.next().value : "no";
              if (failure === "before") throw new Error("before its effect");
              const version = Number(event.entityVersion);
              applied.set(event.entityId, Math.max(version, applied.get(event.entityId) ?? 0));
              if (failure === "after") throw new Error("after its effect");
              done.add(event.eventId);
            },
          });
        await consume();
        for (const [index, [entity, version]] of order.entries()) {
          // The same id each time, as a relay that lost its memory would publish it.
          const id = `${kind}-${entity}-${version}`;
          await session.bus.publish([eventOf({ id, entity, version, subject: `sandgate.test.${kind}.changed.v1` })]);
          if (index === restartAt) {
            await reopen();
            await consume();
          }
        }
        const newest = new Map<string, number>();
        for (const [entity, version] of order) newest.set(entity, Math.max(version, newest.get(entity) ?? 0));
        await until(() =>
          expect(done.size).toBe(new Set(order.map(([entity, version]) => `${entity}${version}`)).size),
        );
        expect(applied).toEqual(newest);
        expect(await listDeadLetters()).toEqual([]);
      }),
      { numRuns: 8 },
    );
  });
}
