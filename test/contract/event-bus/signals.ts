import { until } from "@sandgate/test-support/until";
import { expect, test } from "vitest";
import type { BusSession } from "./session.ts";

/** Signals, which wake whoever watches their topic. */
export function testSignals(session: BusSession): void {
  test("a signal reaches the watchers of its topic until they leave", async () => {
    const heard: string[] = [];
    const leave = session.bus.watch("sandbox.a", (body) => heard.push(`one: ${body}`));
    session.bus.watch("sandbox.a", (body) => heard.push(`two: ${body}`));
    session.bus.watch("sandbox.b", (body) => heard.push(`b: ${body}`));
    session.bus.watch("sandbox", () => heard.push("wrong"));
    session.bus.signal("sandbox.a", "x");
    session.bus.signal("sandbox.b");
    await until(() => expect(heard.toSorted()).toEqual(["b: ", "one: x", "two: x"]));
    leave();
    session.bus.signal("sandbox.a", "y");
    await until(() => expect(heard).toContain("two: y"));
    expect(heard).not.toContain("one: y");
  });

  test("a watcher that throws harms no other", async () => {
    const heard: string[] = [];
    session.bus.watch("topic", () => {
      throw new Error("deaf");
    });
    session.bus.watch("topic", (body) => heard.push(body));
    session.bus.signal("topic", "x");
    await until(() => expect(heard).toEqual(["x"]));
  });
}
