import { setImmediate as turn } from "node:timers/promises";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { expect, onTestFinished, vi } from "vitest";
import { encodeLogs, encodeMetrics } from "../domain/chunks.ts";
import { signalStored } from "../events.ts";
import { openSqliteStore } from "../store/store.sqlite.ts";
import { createChunkSlots } from "./chunk-slots.ts";
import { createSharedChunks, tailRows } from "./tails.ts";

const logger = createLogger({ service: "telemetry", level: "silent" });

test("lines that are stored already are sent a few at a time, so that the process does other things between them", async ({
  folder,
}) => {
  const store = await openSqliteStore({ file: `${folder}/telemetry.sqlite`, logger });
  const bus = await openLocalBus({ file: `${folder}/events.sqlite`, logger, metrics: createMetrics() });
  const lines = Array.from({ length: 5_000 }, (_, i) => ({
    timeNs: BigInt(i),
    stream: "stdout" as const,
    log: `${i}`,
  }));
  const source = { sandboxId: "s1", workspaceId: "w1", containerId: "c1", kind: "logs" } as const;
  await store.sources.append(
    { source, fromCursor: "", toCursor: "a", chunk: await encodeLogs(lines), final: true },
    { quotas: { sandboxBytes: 0, workspaceBytes: 0 }, now: new Date() },
  );

  /** Rows that came since the last turn of the event loop. */
  let inTurn = 0;
  let most = 0;
  let isOver = false;
  const watch = async () => {
    for (; !isOver; await turn()) inTurn = 0;
  };
  const watching = watch();
  const sent: string[] = [];
  const rows = tailRows({
    ...source,
    store,
    bus,
    slots: createChunkSlots(),
    shared: createSharedChunks(),
    position: "0.0",
    stream: undefined,
    include: { logs: true, metrics: false },
    signal: new AbortController().signal,
  });
  for await (const row of rows) {
    if (row.log) sent.push(row.log.log);
    inTurn += 1;
    most = Math.max(most, inTurn);
  }
  isOver = true;
  await watching;
  expect(sent).toEqual(lines.map(({ log }) => log));
  // A turn of the loop may come between two of the watch's.
  expect(most).toBeLessThan(500);
  await store.close();
  await bus.close();
});

test("tails that are hardly read keep few chunks open, hold nobody up for long, and go on where they were", async ({
  folder,
}) => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  onTestFinished(() => void vi.useRealTimers());
  const store = await openSqliteStore({ file: `${folder}/telemetry.sqlite`, logger });
  const bus = await openLocalBus({ file: `${folder}/events.sqlite`, logger, metrics: createMetrics() });
  const lines = Array.from({ length: 2_000 }, (_, i) => ({
    timeNs: BigInt(i),
    stream: "stdout" as const,
    log: `${i}`,
  }));
  const sandboxes = ["s1", "s2"].map((sandboxId) => ({ sandboxId, workspaceId: `of ${sandboxId}` }));
  for (const sandbox of sandboxes) {
    const source = { ...sandbox, containerId: "c1", kind: "logs" } as const;
    for (const [fromCursor, toCursor] of [
      ["", "a"],
      ["a", "b"],
    ] as const) {
      const half = toCursor === "a" ? lines.slice(0, 1_000) : lines.slice(1_000);
      await store.sources.append(
        { source, fromCursor, toCursor, chunk: await encodeLogs(half), final: toCursor === "b" },
        { quotas: { sandboxBytes: 0, workspaceBytes: 0 }, now: new Date() },
      );
    }
  }
  const [crowded, other] = sandboxes;
  if (!crowded || !other) throw new Error("there are two");
  const listed: number[] = [];
  const slots = createChunkSlots();
  const shared = createSharedChunks();
  const stopping = new AbortController();
  const tail = (sandbox: typeof other) =>
    tailRows({
      ...sandbox,
      store: {
        sources: store.sources,
        chunks: {
          ...store.chunks,
          listAfter(query) {
            listed.push(query.limit);
            return store.chunks.listAfter(query);
          },
        },
      },
      bus,
      slots,
      shared,
      position: "0.0",
      stream: undefined,
      include: { logs: true, metrics: false },
      signal: stopping.signal,
    });
  const tails = Array.from({ length: 40 }, () => tail(crowded));
  let begun = 0;
  const beginnings = tails.map(async (rows) => {
    const { value } = await rows.next();
    begun += 1;
    return value?.log?.log;
  });
  await until(() => expect(begun).toBe(16));
  const ofOther: string[] = [];
  for await (const { log } of tail(other)) if (log) ofOther.push(log.log);
  expect(ofOther).toEqual(lines.map(({ log }) => log));
  expect([begun, listed.length]).toEqual([16, 1 + 2]);
  expect(new Set(listed)).toEqual(new Set([1]));

  vi.advanceTimersByTime(1_000);
  await until(() => expect(begun).toBe(32));
  vi.advanceTimersByTime(1_000);
  expect(new Set(await Promise.all(beginnings))).toEqual(new Set(["0"]));
  const [resumed] = tails;
  if (!resumed) throw new Error("there are many");
  vi.advanceTimersByTime(1_000);
  const rest: string[] = [];
  for await (const { log } of resumed) if (log) rest.push(log.log);
  expect(rest).toEqual(lines.slice(1).map(({ log }) => log));

  stopping.abort();
  await Promise.all(tails.map((rows) => rows.return(undefined)));
  expect((await tail(crowded).next()).done).toBe(true);
  await store.close();
  await bus.close();
});

test("tails that follow one log open its newest chunk together, and each has every line", async ({ folder }) => {
  const store = await openSqliteStore({ file: `${folder}/telemetry.sqlite`, logger });
  const bus = await openLocalBus({ file: `${folder}/events.sqlite`, logger, metrics: createMetrics() });
  const source = { sandboxId: "s1", workspaceId: "w1", containerId: "c1", kind: "logs" } as const;
  const lines = Array.from({ length: 5 }, (_, i) => `${i}`);
  const append = async (line: number) => {
    const chunk = await encodeLogs([{ timeNs: BigInt(line), stream: "stdout", log: `${line}` }]);
    const cursors = { fromCursor: line === 0 ? "" : `${line - 1}`, toCursor: `${line}` };
    await store.sources.append(
      { source, ...cursors, chunk, final: line === lines.length - 1 },
      { quotas: { sandboxBytes: 0, workspaceBytes: 0 }, now: new Date() },
    );
    signalStored(bus, source.sandboxId);
  };
  let listed = 0;
  const slots = createChunkSlots();
  const shared = createSharedChunks();
  const texts = Array.from({ length: 40 }, (): string[] => []);
  const following = texts.map(async (sent) => {
    const rows = tailRows({
      ...source,
      store: {
        sources: store.sources,
        chunks: {
          ...store.chunks,
          listAfter(query) {
            listed += 1;
            return store.chunks.listAfter(query);
          },
        },
      },
      bus,
      slots,
      shared,
      position: "0.0",
      stream: undefined,
      include: { logs: true, metrics: false },
      signal: new AbortController().signal,
    });
    for await (const { log } of rows) if (log) sent.push(log.log);
  });
  for (const line of lines.keys()) {
    await append(line);
    await until(() => expect(new Set(texts.map(({ length }) => length))).toEqual(new Set([line + 1])));
  }
  await Promise.all(following);
  for (const sent of texts) expect(sent).toEqual(lines);
  expect(listed).toBeLessThan((texts.length * lines.length) / 2);
  await store.close();
  await bus.close();
});

const first = { logs: "metrics", metrics: "logs" } as const;

test.for(["logs", "metrics"] as const)(
  "a tail doesn't end before a sandbox's %s were stored, though its other source has ended",
  async (late, { folder }) => {
    const store = await openSqliteStore({ file: `${folder}/telemetry.sqlite`, logger });
    const bus = await openLocalBus({ file: `${folder}/events.sqlite`, logger, metrics: createMetrics() });
    const chunks = {
      logs: await encodeLogs([{ timeNs: 1n, stream: "stdout", log: "hello" }]),
      metrics: await encodeMetrics([{ timeNs: 1n, cpuSeconds: 1, memoryBytes: 1 }]),
    };
    const sandbox = { sandboxId: "s1", workspaceId: "w1" };
    const append = (kind: "logs" | "metrics") =>
      store.sources.append(
        {
          source: { ...sandbox, containerId: "c1", kind },
          fromCursor: "",
          toCursor: "a",
          chunk: chunks[kind],
          final: true,
        },
        { quotas: { sandboxBytes: 0, workspaceBytes: 0 }, now: new Date() },
      );
    await append(first[late]);
    let looks = 0;
    const rows = tailRows({
      ...sandbox,
      store: {
        chunks: store.chunks,
        sources: {
          ...store.sources,
          /** Stores them just after the tail has looked what is stored, which it does once before the first rows. */
          async findSandbox(sandboxId) {
            const found = await store.sources.findSandbox(sandboxId);
            looks += 1;
            if (looks === 2) {
              await append(late);
              signalStored(bus, sandbox.sandboxId);
            }
            return found;
          },
        },
      },
      bus,
      slots: createChunkSlots(),
      shared: createSharedChunks(),
      position: "0.0",
      stream: undefined,
      include: { logs: true, metrics: true },
      signal: new AbortController().signal,
    });
    const sent: string[] = [];
    for await (const row of rows) sent.push(row.log ? "logs" : "metrics");
    expect(sent).toEqual([first[late], late]);
    await store.close();
    await bus.close();
  },
);
