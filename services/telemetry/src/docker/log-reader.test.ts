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
