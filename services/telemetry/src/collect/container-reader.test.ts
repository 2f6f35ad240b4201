import { describe, expect, test } from "vitest";
import { createSampleTimes } from "./container-reader.ts";

const everyMs = 5_000;

/** The times of so many samples, each `lateMs` after it was due, of a container that is found at `foundMs`. */
function takeSamples(o: { foundMs: number; count: number; random: number; lateMs?: number }): number[] {
  const nextSampleMs = createSampleTimes(everyMs, () => o.random);
  const times = [o.foundMs];
  while (times.length < o.count) times.push(nextSampleMs(times.at(-1) ?? 0) + (o.lateMs ?? 0));
  return times;
}

const gapsOf = (times: readonly number[]) => times.slice(1).map((time, i) => time - (times[i] ?? 0));

describe("the times of samples", () => {
  test("are five seconds apart, and don't drift when samples are late", () => {
    const [first = 0, ...gaps] = gapsOf(takeSamples({ foundMs: 1_234.5, count: 10, random: 0.7, lateMs: 40 }));
    expect(first).toBeGreaterThan(0);
    expect(first).toBeLessThanOrEqual(everyMs + 40);
    expect(new Set(gaps)).toEqual(new Set([everyMs]));
  });

  test("of containers that were found at once are spread over the five seconds, in few moments", () => {
    const count = 1_000;
    const moments = Array.from({ length: count }, (_, i) => {
      const [, second = 0] = takeSamples({ foundMs: 60_000.25, count: 2, random: i / count });
      return second;
    });
    const byMoment = Map.groupBy(moments, (moment) => moment);
    expect(byMoment.size).toBe(20);
    for (const together of byMoment.values()) expect(together).toHaveLength(count / 20);
  });

  test("leave one out rather than take two in a row when the machine stood still", () => {
    const nextSampleMs = createSampleTimes(everyMs, () => 0);
    expect(nextSampleMs(5_000)).toBe(10_000);
    expect(nextSampleMs(17_000)).toBe(20_000);
  });
});
