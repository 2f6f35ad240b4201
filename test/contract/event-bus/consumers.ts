import { until } from "@sandgate/test-support/until";
import { expect, test } from "vitest";
import { type BusSession, entitiesOf, eventOf, policyUnderTest, someEvents } from "./session.ts";

/** How consumers start, stop and share the events of their subjects. */
export function testConsumers(session: BusSession): void {
  const { consumeInto, reopen } = session;

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
    await session.bus.publish([eventOf({ entity: "first" })]);
    await started.promise;
    const stopped = consumption.stop();
    release.resolve();
    await stopped;
    expect(seen).toEqual(["first"]);
    await session.bus.publish([eventOf({ entity: "second" })]);
    await consumeInto(seen);
    await until(() => expect(seen).toEqual(["first", "second"]));
  });

  test("consumers of one name share the events", async () => {
    const shares: string[][] = [[], []];
    for (const share of shares) await consumeInto(share);
    const events = someEvents(60);
    await session.bus.publish(events);
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
    await session.bus.publish(someEvents(60));
    await until(() => expect(seen).toHaveLength(60));
    expect(most).toBeGreaterThan(1);
    expect(most).toBeLessThanOrEqual(policyUnderTest.concurrency);
  });

  test("a consumer handles as many events at a time as it says", async () => {
    const concurrency = 3 * policyUnderTest.concurrency;
    const all = Promise.withResolvers<void>();
    let running = 0;
    const seen: string[] = [];
    await consumeInto(seen, {
      concurrency,
      handle: async () => {
        if (++running === concurrency) all.resolve();
        await all.promise;
      },
    });
    await session.bus.publish(someEvents(concurrency));
    await until(() => expect(seen).toHaveLength(concurrency));
  });

  test("a consumer that changes its subjects gets the stored events of the new ones", async () => {
    const seen: string[] = [];
    await session.bus.publish([
      eventOf({ entity: "changed" }),
      eventOf({ entity: "made", subject: "sandgate.test.thing.made.v1" }),
    ]);
    await consumeInto(seen, { subjects: ["sandgate.test.thing.changed.v1"] });
    await until(() => expect(seen).toEqual(["changed"]));
    await reopen();
    await consumeInto(seen, { subjects: ["sandgate.test.thing.changed.v1", "sandgate.test.thing.made.v1"] });
    await until(() => expect(seen).toEqual(["changed", "made"]));
  });
}
