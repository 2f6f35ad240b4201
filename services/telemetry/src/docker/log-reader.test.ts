import { createServer, type Server } from "node:http";
import { join } from "node:path";
import { openEngine } from "@sandgate/docker-engine/client";
import { createLogger } from "@sandgate/kit/base/logging";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { afterEach, expect, vi } from "vitest";
import { createLogReader } from "./log-reader.ts";

let server: Server;

afterEach(() => {
  vi.useRealTimers();
  server.closeAllConnections();
  server.close();
});

test("a log that nothing is written to costs fewer and fewer calls of the engine", async ({ folder }) => {
  const socket = join(folder, "engine.sock");
  let follows = 0;
  let reads = 0;
  server = createServer((request, response) => {
    if (new URL(request.url ?? "", "http://engine").searchParams.has("follow")) {
      follows += 1;
      response.writeHead(200).flushHeaders();
    } else {
      reads += 1;
      response.writeHead(200).end();
    }
  });
  await new Promise<void>((resolve) => server.listen(socket, resolve));

  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  const timers = vi.spyOn(globalThis, "setTimeout");
  const readLogs = createLogReader(
    openEngine(`docker://${socket}`),
    createLogger({ service: "telemetry", level: "silent" }),
  );
  const container = { id: "c1", sandboxId: "s1", workspaceId: "w1", state: "running" } as const;
  const stopping = new AbortController();
  const reading = readLogs(container, "", { follow: true, signal: stopping.signal })[Symbol.asyncIterator]().next();
  reading.catch(() => undefined);
  await until(() => expect([follows, reads]).toEqual([1, 1]));

  /**
   * The pauses between reads so far. Of the other timers some end calls of the engine after 30 s, the rest is shorter.
   */
  const pausesMs = () => timers.mock.calls.map(([, ms = 0]) => ms).filter((ms) => ms >= 5_000 && ms !== 30_000);
  const secondsToNextRead = async (): Promise<number> => {
    const before = reads;
    // The last read is over, and the moment after it, which is in real time.
    await until(() => expect(pausesMs()).toHaveLength(before));
    const ms = pausesMs().at(-1) ?? 0;
    vi.advanceTimersByTime(ms);
    await until(() => expect(reads).toBe(before + 1));
    return ms / 1_000;
  };
  const waits = [];
  for (let read = 0; read < 6; read++) waits.push(await secondsToNextRead());
  expect(waits[0]).toBeLessThanOrEqual(15);
  expect(waits.at(-1)).toBeGreaterThanOrEqual(60);
  expect(waits.at(-1)).toBeLessThanOrEqual(125);
  expect(follows).toBe(1);

  stopping.abort();
  await expect(reading).rejects.toThrow();
});

const startMs = Date.UTC(2026, 0, 1);

/** The engine's frame of a line, written `i` milliseconds after the first. */
function frameOf(i: number): Buffer {
  const payload = Buffer.from(`${new Date(startMs + i).toISOString()} ${i}\n`);
  const header = Buffer.from([1, 0, 0, 0, 0, 0, 0, 0]);
  header.writeUInt32BE(payload.length, 4);
  return Buffer.concat([header, payload]);
}

test.for([2_000, 300_000])(
  "%i lines behind one that the engine can't read are read from where it can, with a warning, and once",
  async (behind, { folder }) => {
    const socket = join(folder, "engine.sock");
    /** A line whose writing a full disk broke off stands before this one: reading from before it ends there. */
    const broken = 20;
    let lines = broken;
    server = createServer((request, response) => {
      const tail = Number(new URL(request.url ?? "", "http://engine").searchParams.get("tail") ?? lines);
      const from = Math.max(0, lines - tail);
      const to = from < broken ? Math.min(broken, lines) : lines;
      response.writeHead(200).end(Buffer.concat(Array.from({ length: to - from }, (_, i) => frameOf(from + i))));
    });
    await new Promise<void>((resolve) => server.listen(socket, resolve));
    const logger = createLogger({ service: "telemetry", level: "silent" });
    const warn = vi.spyOn(logger, "warn");
    const readLogs = createLogReader(openEngine(`docker://${socket}`), logger);
    const container = { id: "c1", sandboxId: "s1", workspaceId: "w1", state: "ended" } as const;
    let cursor = "";
    const read = async () => {
      const texts: number[] = [];
      const { signal } = new AbortController();
      for await (const block of readLogs(container, cursor, { follow: false, signal })) {
        texts.push(...block.rows.map(({ log }) => Number(log)));
        cursor = block.cursor;
      }
      return texts;
    };
    expect((await read()).at(-1)).toBe(broken - 1);
    lines += behind;
    const texts = await read();
    expect(texts.length).toBeGreaterThan(100);
    expect(texts).toEqual(Array.from({ length: texts.length }, (_, i) => lines - texts.length + i));
    expect(warn).toHaveBeenCalledTimes(1);
    lines += 3;
    expect(await read()).toEqual([lines - 3, lines - 2, lines - 1]);
    expect(warn).toHaveBeenCalledTimes(1);
  },
);
