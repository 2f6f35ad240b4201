import { create } from "@bufbuild/protobuf";
import { createLogger } from "@sandgate/kit/base/logging";
import { IngestTelemetryResponseSchema } from "@sandgate/proto/telemetry/v1/telemetry";
import { until } from "@sandgate/test-support/until";
import pLimit from "p-limit";
import { describe, expect, test } from "vitest";
import { createSampleTimes, startContainerReader } from "./container-reader.ts";
import { createMemoryBudget } from "./memory-budget.ts";

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

test("a sample that an engine gives again is stored once, also one that was stored before", async () => {
  const times = [7n, 8n, 8n, 8n, 9n];
  const stored: (number | undefined)[] = [];
  const stopping = new AbortController();
  const reader = startContainerReader(
    { id: "c1", sandboxId: "s1", state: "running" },
    {
      containers: {
        list: async () => [],
        inspect: async (id) => ({ id, sandboxId: "s1", state: "running" }),
        async *watch() {},
        async *readLogs() {},
        openSampler: () => async () => {
          const timeNs = times.shift();
          return timeNs === undefined ? undefined : { timeNs, cpuSeconds: Number(timeNs), memoryBytes: 1 };
        },
      },
      client: {
        async ingestTelemetry({ metrics = [], fromCursor, toCursor = "" }) {
          stored.push(...metrics.map(({ cpuUsage }) => cpuUsage));
          return create(IngestTelemetryResponseSchema, {
            accepted: true,
            storedCursor: fromCursor === undefined ? "7" : toCursor,
          });
        },
      },
      ingestLimits: { logs: pLimit(1), metrics: pLimit(1) },
      sampleMs: 1,
      budget: createMemoryBudget(1_000),
      isEngineReadable: () => true,
      onLines: () => {},
      logger: createLogger({ service: "telemetry", level: "silent" }),
      signal: stopping.signal,
    },
    0,
  );
  await until(() => expect(stored).toContain(9));
  expect(stored).toEqual([8, 9]);
  stopping.abort();
  await reader.done;
});
