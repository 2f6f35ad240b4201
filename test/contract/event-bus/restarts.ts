import { until } from "@sandgate/test-support/until";
import { expect, test } from "vitest";
import { type BusSession, entitiesOf, eventOf, someEvents } from "./session.ts";

/** What outlasts a connection to the bus, and what does not. */
export function testRestarts(session: BusSession): void {
  const { consumeInto, reopen } = session;

  test("an event published again under its id is not delivered again", async () => {
    const seen: string[] = [];
    await consumeInto(seen);
    const event = eventOf({ entity: "once" });
    await session.bus.publish([event]);
    await until(() => expect(seen).toEqual(["once"]));
    await session.bus.publish([event, event]);
    await reopen();
    await session.bus.publish([event]);
    const last = eventOf({ entity: "last" });
    await session.bus.publish([last]);
    await consumeInto(seen);
    await until(() => expect(seen).toContain("last"));
    expect(seen.toSorted()).toEqual(["last", "once"]);
  });

  test("a restart meanwhile loses nothing", async () => {
    const events = someEvents(120);
    await session.bus.publish(events.slice(0, 80));
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
    await session.bus.publish(events.slice(80));
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
    await session.bus.publish([eventOf({ entity: "a" })]);
    await failed.promise;
    await reopen();
    const seen: string[] = [];
    await consumeInto(seen);
    await until(() => expect(seen).toEqual(["a"]));
  });

  test("its identity survives restarts and changes when it is recreated", async () => {
    const identity = await session.bus.identity();
    await reopen();
    expect(await session.bus.identity()).toBe(identity);
    await session.wipe();
    expect(await session.bus.identity()).not.toBe(identity);
  });
}
