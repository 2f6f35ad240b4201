import { setTimeout as delay } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { createLogger } from "@sandgate/kit/base/logging";
import { hourMs } from "@sandgate/kit/base/time";
import { IngestTelemetryResponseSchema, SourceKind } from "@sandgate/proto/telemetry/v1/telemetry";
import { until } from "@sandgate/test-support/until";
import pLimit from "p-limit";
import { describe, expect, test } from "vitest";
import { createSampleSlots, startContainerReader } from "./container-reader.ts";
import { createMemoryBudget } from "./memory-budget.ts";

const everyMs = 5_000;

describe("the slots of samples", () => {
  test("follow one another every five seconds, from a moment of the container's own", () => {
    const slots = createSampleSlots("c1", everyMs);
    const slot = slots.at(1_234.5);
    expect(slots.startOf(slot)).toBeLessThanOrEqual(1_234.5);
    for (const next of [slot, slot + 1, slot + 7]) {
      expect([slots.at(slots.startOf(next)), slots.at(slots.startOf(next) - 1)]).toEqual([next, next - 1]);
      expect(slots.startOf(next + 1) - slots.startOf(next)).toBe(everyMs);
    }
  });

  test("of many containers begin at few moments that are spread over the five seconds", () => {
    const count = 1_000;
    const moments = Array.from({ length: count }, (_, i) => createSampleSlots(`container ${i}`, everyMs).startOf(12));
    const byMoment = Map.groupBy(moments, (moment) => moment);
    expect(byMoment.size).toBe(20);
    for (const together of byMoment.values()) expect(together.length).toBeLessThan(count / 10);
  });
});

/** What readers of one container bring into a store, by a clock that the test holds. */
function collectSamples(o: { sampleMs: number; now(): number; hasFigures?: boolean }) {
  let cursor = "0";
  const counts = { opened: 0, taken: 0, empty: 0 };
  const stored: number[] = [];
  const start = () => {
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
            counts.taken += 1;
            if (o.hasFigures === false) return undefined;
            return { timeNs: BigInt(Math.round(o.now() * 1e6)), cpuSeconds: o.now(), memoryBytes: 1 };
          },
        },
        client: {
          async ingestTelemetry({ source, metrics = [], fromCursor, toCursor = "" }) {
            if (source?.kind !== SourceKind.METRICS)
              return create(IngestTelemetryResponseSchema, { storedCursor: "0" });
            if (fromCursor === undefined) counts.opened += 1;
            const accepted = fromCursor === cursor;
            if (accepted) cursor = toCursor;
            if (accepted && metrics.length === 0) counts.empty += 1;
            if (accepted) stored.push(...metrics.map(({ cpuUsage }) => cpuUsage ?? 0));
            return create(IngestTelemetryResponseSchema, { accepted, storedCursor: cursor });
          },
        },
        ingestLimits: { logs: pLimit(1), metrics: pLimit(1) },
        sampleMs: o.sampleMs,
        budget: createMemoryBudget(1_000),
        isEngineReadable: () => true,
        onLines: () => {},
        logger: createLogger({ service: "telemetry", level: "silent" }),
        now: o.now,
        signal: stopping.signal,
      },
      0,
    );
    return {
      reader,
      async stop() {
        stopping.abort();
        await reader.done;
      },
    };
  };
  return { start, stored, counts };
}

test("a slot yields one sample, though timers fire early", async () => {
  const sampleMs = 100;
  // By this clock each timer fires after half of its time.
  const { start, stored } = collectSamples({ sampleMs, now: () => 1_000_000 + performance.now() / 2 });
  const { stop } = start();
  await until(() => expect(stored.length).toBeGreaterThan(8));
  await stop();
  const slots = createSampleSlots("c1", sampleMs);
  expect(stored.map(slots.at)).toEqual([...new Set(stored.map(slots.at))]);
});

test("a slot yields one sample when another replica takes the container over, and one that is asked for beside it", async () => {
  const sampleMs = 500;
  let now = 1_000_000_100;
  const { start, stored, counts } = collectSamples({ sampleMs, now: () => now });
  const first = start();
  await until(() => expect(stored).toEqual([1_000_000_100]));
  await first.stop();
  const second = start();
  await until(() => expect(counts.opened).toBe(2));
  now += sampleMs;
  await until(() => expect(stored).toEqual([1_000_000_100, 1_000_000_600]));
  expect(counts.taken).toBe(2);
  now += 1;
  second.reader.sample();
  await until(() => expect(stored).toEqual([1_000_000_100, 1_000_000_600, 1_000_000_601]));
  await second.stop();
});

test("a container without figures stores an empty batch each hour, so that its sandbox's record stays while it lives", async () => {
  const sampleMs = 100;
  let now = 1_000_000_000;
  const { start, counts } = collectSamples({ sampleMs, now: () => now, hasFigures: false });
  const { stop } = start();
  const pass = async (ms: number) => {
    const { taken } = counts;
    now += ms;
    await until(() => expect(counts.taken).toBeGreaterThan(taken));
  };
  await until(() => expect(counts.taken).toBe(1));
  await pass(hourMs - 2 * sampleMs);
  await pass(sampleMs);
  expect(counts.empty).toBe(0);
  await pass(sampleMs);
  await until(() => expect(counts.empty).toBe(1));
  await pass(hourMs - sampleMs);
  await pass(sampleMs);
  await until(() => expect(counts.empty).toBe(2));
  await stop();
});

test("samples go on when the clock is set back", async () => {
  const sampleMs = 100;
  let now = 1_000_000_000;
  const { start, stored } = collectSamples({ sampleMs, now: () => now });
  const { stop } = start();
  await until(() => expect(stored).toEqual([1_000_000_000]));
  now -= 120_000;
  await until(() => expect(stored).toEqual([1_000_000_000, 999_880_000]));
  now += sampleMs;
  await until(() => expect(stored).toEqual([1_000_000_000, 999_880_000, 999_880_100]));
  await stop();
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
      now: () => performance.now(),
      signal: stopping.signal,
    },
    0,
  );
  await until(() => expect(stored).toContain(9));
  expect(stored).toEqual([8, 9]);
  stopping.abort();
  await reader.done;
});

test("a log that breaks off while its lines are being stored is read again from after them", async () => {
  const reads: string[] = [];
  const sent = Promise.withResolvers<void>();
  const stored: string[] = [];
  const stopping = new AbortController();
  const reader = startContainerReader(
    { id: "c1", sandboxId: "s1", state: "running" },
    {
      containers: {
        list: async () => [],
        inspect: async (id) => ({ id, sandboxId: "s1", state: "running" }),
        async *watch() {},
        async *readLogs(_container, cursor, { signal }) {
          reads.push(cursor);
          if (cursor !== "0") await delay(2 ** 30, undefined, { signal });
          yield { rows: [{ timeNs: 1n, stream: "stdout", log: "a line" }], cursor: "1" };
          await sent.promise;
          throw new Error("the engine's connection broke off");
        },
        openSampler: () => async () => undefined,
      },
      client: {
        async ingestTelemetry({ logs = [], toCursor = "" }) {
          if (logs.length > 0) {
            sent.resolve();
            // Longer than until the log is read again.
            await delay(500);
            stored.push(...logs.map(({ log = "" }) => log));
          }
          return create(IngestTelemetryResponseSchema, { accepted: true, storedCursor: toCursor });
        },
      },
      ingestLimits: { logs: pLimit(1), metrics: pLimit(1) },
      sampleMs: everyMs,
      budget: createMemoryBudget(1_000),
      isEngineReadable: () => true,
      onLines: () => {},
      logger: createLogger({ service: "telemetry", level: "silent" }),
      now: () => performance.now(),
      signal: stopping.signal,
    },
    0,
  );
  await until(() => expect(reads.at(-1)).toBe("1"));
  expect([reads, stored]).toEqual([["0", "1"], ["a line"]]);
  stopping.abort();
  await reader.done;
});
