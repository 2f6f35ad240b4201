import { create, toBinary } from "@bufbuild/protobuf";
import { newId } from "@sandgate/kit/base/ids";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import { type Event, EventSchema } from "@sandgate/proto/common/v1/event";
import { until } from "@sandgate/test-support/until";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";

/** One adapter's bus, for one test. */
export interface BusUnderTest {
  /** Connects to it, again and again; with the delivery policy below. */
  open(): Promise<EventBus>;
  /** Deletes everything that it stores. No connection is open. */
  wipe(): Promise<void>;
  remove(): Promise<void>;
}

/** The suite waits for redeliveries, so they come soon; a handler that hangs is given up after two seconds, which no busy machine takes. */
export const policyUnderTest = {
  attempts: 4,
  firstMs: 10,
  lastMs: 40,
  handlerTimeoutMs: 2_000,
  concurrency: 4,
} as const;

export function eventOf(o: { entity: string; version?: number; subject?: string; id?: string }): StagedEvent {
  const id = o.id ?? newId();
  const subject = o.subject ?? "sandgate.test.thing.changed.v1";
  const event = create(EventSchema, {
    eventId: id,
    subject,
    entityId: o.entity,
    entityVersion: BigInt(o.version ?? 1),
    workspaceId: "workspace",
    requestId: "request",
    actor: { userId: "user", credentialId: "token" },
  });
  return { id, subject, bytes: toBinary(EventSchema, event) };
}

const someEvents = (count: number) => Array.from({ length: count }, (_, number) => eventOf({ entity: `${number}` }));
const entitiesOf = (events: readonly StagedEvent[]) => events.map((_, number) => `${number}`);

/** The contract of every event bus. */
export function describeEventBus(name: string, createBus: () => Promise<BusUnderTest>): void {
  describe(`event bus: ${name}`, () => {
    let place: BusUnderTest;
    let bus: EventBus;

    beforeEach(async () => {
      place = await createBus();
      bus = await place.open();
    });
    afterEach(async () => {
      await bus.close();
      await place.remove();
    });

    const reopen = async () => {
      await bus.close();
      bus = await place.open();
    };
    const listDeadLetters = () => bus.deadLetters.list({ limit: 100 });
    /** Consumes everything with this handler, by default one that just notes the entity. */
    const consumeInto = async (
      seen: string[],
      o: { consumer?: string; subjects?: string[]; handle?: (event: Event) => Promise<void> } = {},
    ) =>
      bus.consume({
        consumer: o.consumer ?? "test",
        subjects: o.subjects ?? ["sandgate.>"],
        handle: async (event) => {
          await o.handle?.(event);
          seen.push(event.entityId);
        },
      });

    test("an event arrives complete, at every consumer of its subject and at no other", async () => {
      const whole: Event[] = [];
      const other: string[] = [];
      const exact: string[] = [];
      await consumeInto([], { handle: async (event) => void whole.push(event) });
      await consumeInto(other, { consumer: "other", subjects: ["sandgate.test.*.created.v1", "sandgate.more.>"] });
      await consumeInto(exact, { consumer: "exact", subjects: ["sandgate.test.thing.changed.v1"] });
      const changed = eventOf({ entity: "a", version: 7 });
      const created = eventOf({ entity: "b", subject: "sandgate.test.thing.created.v1" });
      await bus.publish([changed, created]);
      await until(() => expect([whole.length, other.length, exact.length]).toEqual([2, 1, 1]));
      expect(whole.map((event) => toBinary(EventSchema, event))).toEqual(
        expect.arrayContaining([changed.bytes, created.bytes].map((bytes) => new Uint8Array(bytes))),
      );
      expect([other, exact]).toEqual([["b"], ["a"]]);
    });

    test("a new consumer starts with the oldest stored event", async () => {
      const events = someEvents(20);
      await bus.publish(events);
      const seen: string[] = [];
      await consumeInto(seen);
      await until(() => expect(new Set(seen)).toEqual(new Set(entitiesOf(events))));
    });

    test("an event published again under its id is not delivered again", async () => {
      const seen: string[] = [];
      await consumeInto(seen);
      const event = eventOf({ entity: "once" });
      await bus.publish([event]);
      await until(() => expect(seen).toEqual(["once"]));
      await bus.publish([event, event]);
      await reopen();
      await bus.publish([event]);
      const last = eventOf({ entity: "last" });
      await bus.publish([last]);
      await consumeInto(seen);
      await until(() => expect(seen).toContain("last"));
      expect(seen.toSorted()).toEqual(["last", "once"]);
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
      await bus.publish(events);
      await until(() => expect(seen.toSorted()).toEqual(entitiesOf(events).toSorted()));
      expect(attempts).toBe(3);
    });

    test("an event that always fails becomes a dead letter with its last error, also after a restart", async () => {
      let attempts = 0;
      const seen: string[] = [];
      const handle = async (event: Event) => {
        if (event.entityId !== "poison") return;
        attempts++;
        throw new Error(`failure ${attempts}`);
      };
      await consumeInto(seen, { handle });
      await bus.publish([eventOf({ entity: "poison", version: 3 }), eventOf({ entity: "good" })]);
      await until(async () => expect(await listDeadLetters()).toHaveLength(1));
      await reopen();
      await consumeInto(seen, { handle });
      await bus.publish([eventOf({ entity: "later" })]);
      await until(() => expect(seen.toSorted()).toEqual(["good", "later"]));
      expect(attempts).toBe(policyUnderTest.attempts);
      const [letter, ...others] = await listDeadLetters();
      expect(others).toEqual([]);
      expect(letter).toMatchObject({ consumer: "test", attempts, error: `failure ${attempts}` });
      expect(letter?.event).toMatchObject({ entityId: "poison", entityVersion: 3n });
      expect(letter?.failedAt).toBeInstanceOf(Date);
      expect(await bus.deadLetters.get(letter?.id ?? "")).toEqual(letter);
    });

    test("a dead letter is replayed to the consumer that failed alone, and stays while that fails", async () => {
      const seen: string[] = [];
      const others: string[] = [];
      let isBroken = true;
      const handle = async () => {
        if (isBroken) throw new Error("broken");
      };
      const consumption = await consumeInto(seen, { handle });
      await consumeInto(others, { consumer: "other" });
      await bus.publish([eventOf({ entity: "a" })]);
      await until(async () => expect(await listDeadLetters()).toHaveLength(1));
      await until(() => expect(others).toEqual(["a"]));
      const [letter] = await listDeadLetters();
      const id = letter?.id ?? "";

      await expect(bus.deadLetters.replay(id)).rejects.toThrow("the consumer test failed again: broken");
      expect(await listDeadLetters()).toEqual([letter]);
      isBroken = false;
      expect(await bus.deadLetters.replay(id)).toBe(true);
      expect(seen).toEqual(["a"]);
      expect(await listDeadLetters()).toEqual([]);
      expect(await bus.deadLetters.replay(id)).toBe(false);

      isBroken = true;
      await bus.publish([eventOf({ entity: "b" })]);
      await until(async () => expect(await listDeadLetters()).toHaveLength(1));
      await consumption.stop();
      const [next] = await listDeadLetters();
      await expect(bus.deadLetters.replay(next?.id ?? "")).rejects.toThrow("not running");
      expect(await listDeadLetters()).toEqual([next]);
      await consumeInto(seen);
      await bus.publish([eventOf({ entity: "c" })]);
      await until(() => expect(seen).toContain("c"));
      expect([seen, others.toSorted()]).toEqual([
        ["a", "c"],
        ["a", "b", "c"],
      ]);
    });

    test("dead letters are listed page by page until they are dropped", async () => {
      const handle = () => Promise.reject(new Error("never"));
      for (const consumer of ["one", "two"]) await consumeInto([], { consumer, handle });
      await bus.publish(someEvents(3));
      await until(async () => expect(await listDeadLetters()).toHaveLength(6));
      const ids = (await listDeadLetters()).map(({ id }) => id);
      expect(ids).toEqual(ids.toSorted());
      const first = await bus.deadLetters.list({ limit: 4 });
      const rest = await bus.deadLetters.list({ limit: 4, afterId: first.at(-1)?.id });
      expect([first, rest].map((page) => page.map(({ id }) => id))).toEqual([ids.slice(0, 4), ids.slice(4)]);
      const [dropped = "", ...kept] = ids;
      const outcomes = await Promise.all([bus.deadLetters.drop(dropped), bus.deadLetters.drop(dropped)]);
      expect(outcomes.toSorted()).toEqual([false, true]);
      expect(await bus.deadLetters.drop(dropped)).toBe(false);
      expect(await bus.deadLetters.get(dropped)).toBeUndefined();
      await reopen();
      expect((await listDeadLetters()).map(({ id }) => id)).toEqual(kept);
    });

    test.each(["", "none", "test.none", "*.*", "test.>"])("%j is no dead letter", async (id) => {
      await consumeInto([], { handle: () => Promise.reject(new Error("never")) });
      await bus.publish([eventOf({ entity: "a" })]);
      await until(async () => expect(await listDeadLetters()).toHaveLength(1));
      expect(await bus.deadLetters.get(id)).toBeUndefined();
      expect(await bus.deadLetters.replay(id)).toBe(false);
      expect(await bus.deadLetters.drop(id)).toBe(false);
      expect(await listDeadLetters()).toHaveLength(1);
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
      await bus.publish([eventOf({ entity: "stuck" })]);
      await until(() => expect(seen).toEqual(["stuck"]));
      release.resolve();
    });

    test("a restart meanwhile loses nothing", async () => {
      const events = someEvents(120);
      await bus.publish(events.slice(0, 80));
      const seen: string[] = [];
      for (let restart = 1; restart <= 3; restart++) {
        const handled = Promise.withResolvers<void>();
        await consumeInto(seen, {
          handle: async () => {
            if (seen.length >= restart * 20) handled.resolve();
          },
        });
        await handled.promise;
        await reopen();
      }
      await bus.publish(events.slice(80));
      await consumeInto(seen);
      await until(() => expect(new Set(seen)).toEqual(new Set(entitiesOf(events))));
    });

    test("an event whose handler failed before a restart is delivered again after it", async () => {
      const failed = Promise.withResolvers<void>();
      await consumeInto([], {
        handle: async () => {
          failed.resolve();
          throw new Error("going down");
        },
      });
      await bus.publish([eventOf({ entity: "a" })]);
      await failed.promise;
      await reopen();
      const seen: string[] = [];
      await consumeInto(seen);
      await until(() => expect(seen).toEqual(["a"]));
    });

    test("a stopped consumer waits for its handlers and resumes where it stopped", async () => {
      const seen: string[] = [];
      const started = Promise.withResolvers<void>();
      const release = Promise.withResolvers<void>();
      const consumption = await consumeInto(seen, {
        handle: async () => {
          started.resolve();
          await release.promise;
        },
      });
      await bus.publish([eventOf({ entity: "first" })]);
      await started.promise;
      const stopped = consumption.stop();
      release.resolve();
      await stopped;
      expect(seen).toEqual(["first"]);
      await bus.publish([eventOf({ entity: "second" })]);
      await consumeInto(seen);
      await until(() => expect(seen).toEqual(["first", "second"]));
    });

    test("consumers of one name share the events", async () => {
      const shares: string[][] = [[], []];
      for (const share of shares) await consumeInto(share);
      const events = someEvents(60);
      await bus.publish(events);
      await until(() => expect(shares.flat().toSorted()).toEqual(entitiesOf(events).toSorted()));
    });

    test("a consumer handles a limited number of events at a time", async () => {
      let running = 0;
      let most = 0;
      const seen: string[] = [];
      await consumeInto(seen, {
        handle: async () => {
          most = Math.max(most, ++running);
          await new Promise((resolve) => setImmediate(resolve));
          running--;
        },
      });
      await bus.publish(someEvents(60));
      await until(() => expect(seen).toHaveLength(60));
      expect(most).toBeGreaterThan(1);
      expect(most).toBeLessThanOrEqual(policyUnderTest.concurrency);
    });

    test("a consumer that changes its subjects gets the stored events of the new ones", async () => {
      const seen: string[] = [];
      await bus.publish([
        eventOf({ entity: "changed" }),
        eventOf({ entity: "made", subject: "sandgate.test.thing.made.v1" }),
      ]);
      await consumeInto(seen, { subjects: ["sandgate.test.thing.changed.v1"] });
      await until(() => expect(seen).toEqual(["changed"]));
      await reopen();
      await consumeInto(seen, { subjects: ["sandgate.test.thing.changed.v1", "sandgate.test.thing.made.v1"] });
      await until(() => expect(seen).toEqual(["changed", "made"]));
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
            bus.consume({
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
            await bus.publish([eventOf({ id, entity, version, subject: `sandgate.test.${kind}.changed.v1` })]);
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

    test("its identity stays over restarts and changes when it is made anew", async () => {
      const identity = await bus.identity();
      await reopen();
      expect(await bus.identity()).toBe(identity);
      await bus.close();
      await place.wipe();
      bus = await place.open();
      expect(await bus.identity()).not.toBe(identity);
    });

    test("a signal reaches the watchers of its topic until they leave", async () => {
      const heard: string[] = [];
      const leave = bus.watch("sandbox.a", (body) => heard.push(`one: ${body}`));
      bus.watch("sandbox.a", (body) => heard.push(`two: ${body}`));
      bus.watch("sandbox.b", (body) => heard.push(`b: ${body}`));
      bus.watch("sandbox", () => heard.push("wrong"));
      bus.signal("sandbox.a", "x");
      bus.signal("sandbox.b");
      await until(() => expect(heard.toSorted()).toEqual(["b: ", "one: x", "two: x"]));
      leave();
      bus.signal("sandbox.a", "y");
      await until(() => expect(heard).toContain("two: y"));
      expect(heard).not.toContain("one: y");
    });

    test("a watcher that throws harms no other", async () => {
      const heard: string[] = [];
      bus.watch("topic", () => {
        throw new Error("deaf");
      });
      bus.watch("topic", (body) => heard.push(body));
      bus.signal("topic", "x");
      await until(() => expect(heard).toEqual(["x"]));
    });
  });
}
