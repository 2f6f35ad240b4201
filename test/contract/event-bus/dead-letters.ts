import type { Event } from "@sandgate/proto/common/v1/event";
import { until } from "@sandgate/test-support/until";
import { expect, test } from "vitest";
import { type BusSession, eventOf, policyUnderTest, someEvents } from "./session.ts";

/** What becomes of events that a consumer fails to handle for good. */
export function testDeadLetters(session: BusSession): void {
  const { consumeInto, listDeadLetters, reopen } = session;

  test("an event that always fails becomes a dead letter with its last error, also after a restart", async () => {
    let attempts = 0;
    const seen: string[] = [];
    const handle = async (event: Event) => {
      if (event.entityId !== "poison") return;
      attempts++;
      throw new Error(`failure ${attempts}`);
    };
    await consumeInto(seen, { handle });
    await session.bus.publish([eventOf({ entity: "poison", version: 3 }), eventOf({ entity: "good" })]);
    await until(async () => expect(await listDeadLetters()).toHaveLength(1));
    await reopen();
    await consumeInto(seen, { handle });
    await session.bus.publish([eventOf({ entity: "later" })]);
    await until(() => expect(seen.toSorted()).toEqual(["good", "later"]));
    expect(attempts).toBe(policyUnderTest.attempts);
    const [letter, ...others] = await listDeadLetters();
    expect(others).toEqual([]);
    expect(letter).toMatchObject({ consumer: "test", attempts, error: `failure ${attempts}` });
    expect(letter?.event).toMatchObject({ entityId: "poison", entityVersion: 3n });
    expect(letter?.failedAt).toBeInstanceOf(Date);
    expect(await session.bus.deadLetters.get(letter?.id ?? "")).toEqual(letter);
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
    await session.bus.publish([eventOf({ entity: "a" })]);
    await until(async () => expect(await listDeadLetters()).toHaveLength(1));
    await until(() => expect(others).toEqual(["a"]));
    const [letter] = await listDeadLetters();
    const id = letter?.id ?? "";

    await expect(session.bus.deadLetters.replay(id)).rejects.toThrow("the consumer test failed again: broken");
    expect(await listDeadLetters()).toEqual([letter]);
    isBroken = false;
    expect(await session.bus.deadLetters.replay(id)).toBe(true);
    expect(seen).toEqual(["a"]);
    expect(await listDeadLetters()).toEqual([]);
    expect(await session.bus.deadLetters.replay(id)).toBe(false);

    isBroken = true;
    await session.bus.publish([eventOf({ entity: "b" })]);
    await until(async () => expect(await listDeadLetters()).toHaveLength(1));
    await consumption.stop();
    const [next] = await listDeadLetters();
    await expect(session.bus.deadLetters.replay(next?.id ?? "")).rejects.toThrow("not running");
    expect(await listDeadLetters()).toEqual([next]);
    await consumeInto(seen);
    await session.bus.publish([eventOf({ entity: "c" })]);
    await until(() => expect(seen).toContain("c"));
    await until(() => expect(others).toContain("c"));
    expect([seen, others.toSorted()]).toEqual([
      ["a", "c"],
      ["a", "b", "c"],
    ]);
  });

  test("dead letters are listed page by page until they are dropped", async () => {
    const handle = () => Promise.reject(new Error("never"));
    for (const consumer of ["one", "two"]) await consumeInto([], { consumer, handle });
    await session.bus.publish(someEvents(3));
    await until(async () => expect(await listDeadLetters()).toHaveLength(6));
    const ids = (await listDeadLetters()).map(({ id }) => id);
    expect(ids).toEqual(ids.toSorted());
    const first = await session.bus.deadLetters.list({ limit: 4 });
    const rest = await session.bus.deadLetters.list({ limit: 4, afterId: first.at(-1)?.id });
    expect([first, rest].map((page) => page.map(({ id }) => id))).toEqual([ids.slice(0, 4), ids.slice(4)]);
    const [dropped = "", ...kept] = ids;
    const outcomes = await Promise.all([session.bus.deadLetters.drop(dropped), session.bus.deadLetters.drop(dropped)]);
    expect(outcomes.toSorted()).toEqual([false, true]);
    expect(await session.bus.deadLetters.drop(dropped)).toBe(false);
    expect(await session.bus.deadLetters.get(dropped)).toBeUndefined();
    await reopen();
    expect((await listDeadLetters()).map(({ id }) => id)).toEqual(kept);
  });

  test.each(["", "none", "test.none", "*.*", "test.>"])("%j is no dead letter", async (id) => {
    await consumeInto([], { handle: () => Promise.reject(new Error("never")) });
    await session.bus.publish([eventOf({ entity: "a" })]);
    await until(async () => expect(await listDeadLetters()).toHaveLength(1));
    expect(await session.bus.deadLetters.get(id)).toBeUndefined();
    expect(await session.bus.deadLetters.replay(id)).toBe(false);
    expect(await session.bus.deadLetters.drop(id)).toBe(false);
    expect(await listDeadLetters()).toHaveLength(1);
  });
}
