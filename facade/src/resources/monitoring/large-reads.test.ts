import { once } from "node:events";
import { request as httpRequest, IncomingMessage, ServerResponse } from "node:http";
import { Socket } from "node:net";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { LogStream } from "@sandgate/proto/telemetry/v1/telemetry";
import { until } from "@sandgate/test-support/until";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { apiToken, at, openTestPlatform, sandboxMessage, type TestPlatform, workspaceId } from "../../test-platform.ts";
import { createLargeReads, type LargeReads } from "./large-reads.ts";

/** A sandbox's rows come on these pages; the second waits until the test opens the gate. */
let pages: string[];
let linesOnPage: string[];

let platform: TestPlatform;
let url: string;
let gate: PromiseWithResolvers<void>;
/** Reads beyond the first page that run now, and ever. */
let running: number;
let most: number;
let failing: boolean;

beforeEach(async () => {
  pages = ["", "second", "third"];
  linesOnPage = ['a "quoted" line\u001b', "b"];
  [gate, running, most, failing] = [Promise.withResolvers(), 0, 0, false];
  platform = await openTestPlatform({
    env: { SANDGATE_RATE_LIMIT: "0" },
    handlers: {
      identity: { verifyApiToken: ({ token }) => ({ tokenId: token, userId: `user of ${token}`, operator: false }) },
      sandbox: { getSandbox: () => ({ sandbox: sandboxMessage() }) },
      workspace: { getMembership: () => ({ workspaceExists: true, role: 1 }) },
      telemetry: {
        async queryTelemetry(request) {
          expect(request.pageBytes).toBeGreaterThan(0);
          const page = pages.indexOf(request.pageToken);
          const last = pages.length - 1;
          if (page === 1) {
            running += 1;
            most = Math.max(most, running);
            await gate.promise;
            if (failing) throw new DomainError("UPSTREAM_ERROR", "gone");
          }
          if (page === last) running -= 1;
          return {
            logs: linesOnPage.map((log) => ({ timestamp: at, stream: LogStream.STDOUT, log: `${last - page} ${log}` })),
            metrics: page === last ? [] : [{ timestamp: at, cpuUsage: last - page, memoryUsage: 4096 }],
            nextPageToken: pages[page + 1] ?? "",
          };
        },
      },
    },
  });
  url = await platform.listen();
});
afterEach(async () => {
  gate.resolve();
  await platform.close();
});

const headersOf = (token: string) => ({ authorization: `Bearer ${token}`, "x-workspace-id": workspaceId });
const read = (token = apiToken, query = "?limit=10000") =>
  fetch(`${url}/sandbox/monitoring/box${query}`, { headers: headersOf(token) });

test("an answer has the rows of all pages, oldest first, in the order of each", async () => {
  gate.resolve();
  const response = await read();
  expect(response.headers.get("content-type")).toBe("application/json; charset=utf-8");
  const timestamp = "2026-05-28T20:26:40.123456Z";
  expect(await response.json()).toEqual({
    sandbox_id: sandboxMessage().id,
    sandbox_name: "box",
    logs: [0, 1, 2].flatMap((page) =>
      linesOnPage.map((log) => ({ timestamp, stream: "stdout", log: `${page} ${log}` })),
    ),
    metrics: [1, 2].map((page) => ({ timestamp: "2026-05-28T20:26:40.123Z", cpu_usage: page, memory_usage: 4096 })),
  });
  const head = await fetch(`${url}/sandbox/monitoring/box`, { method: "HEAD", headers: headersOf(apiToken) });
  expect([head.status, await head.text()]).toEqual([200, ""]);
});

test("a user's large reads run two at once, eight more wait, and above that they are refused", async () => {
  const reads = Array.from({ length: 10 }, () => read());
  await until(() => expect(running).toBe(2));
  const refused = await until(async () => {
    const response = await read();
    expect(response.status).toBe(429);
    return response;
  });
  expect(refused.headers.get("retry-after")).toBe("2");
  expect(await refused.json()).toMatchObject({ error: { code: "rate_limited", retryable: true } });
  // Another user isn't held up.
  const other = read("sgt_other");
  await until(() => expect(running).toBe(3));
  gate.resolve();
  for (const response of await Promise.all([...reads, other])) {
    expect(response.status).toBe(200);
    await response.arrayBuffer();
  }
  expect((await read()).status).toBe(200);
});

test("all users' large reads run four at once", async () => {
  const reads = Array.from({ length: 6 }, (_, i) => read(`sgt_${i}`));
  await until(() => expect(running).toBe(4));
  gate.resolve();
  for (const response of await Promise.all(reads)) expect(response.status).toBe(200);
  expect(most).toBe(4);
});

test("a read that fails, or whose client has gone, gives its turn to the next", async () => {
  const [first, second] = [read(), read()];
  await until(() => expect(running).toBe(2));
  const client = httpRequest(`${url}/sandbox/monitoring/box`, { headers: headersOf(apiToken) }).end();
  client.on("error", () => undefined);
  const third = read();
  client.destroy();
  failing = true;
  gate.resolve();
  for (const response of await Promise.all([first, second])) expect(response.status).toBe(502);
  expect((await third).status).toBe(502);
  failing = false;
  expect((await read()).status).toBe(200);
});

test("an answer that its client doesn't take holds that user's turn, and nobody else's", async () => {
  gate.resolve();
  const unread: IncomingMessage[] = [];
  linesOnPage.push("x".repeat(8 * 1024 * 1024));
  try {
    for (let i = 0; i < 2; i += 1) {
      const sent = httpRequest(`${url}/sandbox/monitoring/box`, { headers: headersOf(apiToken) }).end();
      const [response]: IncomingMessage[] = await once(sent, "response");
      if (response) unread.push(response);
    }
    linesOnPage.pop();
    let isAnswered = false;
    const waiting = read().finally(() => {
      isAnswered = true;
    });
    expect((await read("sgt_other")).status).toBe(200);
    expect(isAnswered).toBe(false);
    unread[0]?.destroy();
    expect((await waiting).status).toBe(200);
  } finally {
    for (const response of unread) response.destroy();
  }
});

describe("answers that are not sent yet", () => {
  const largest = 34 * 1024 * 1024;
  const { signal } = new AbortController();

  /** Reads an answer of so many bytes, and returns its response, which is not sent. */
  async function hold(reads: LargeReads, userId: string, bytes: number): Promise<ServerResponse> {
    const response = new ServerResponse(new IncomingMessage(new Socket()));
    await reads.run({ userId, response, signal, read: async (take) => take(bytes) });
    return response;
  }

  test("are counted by their bytes, of all users together", async () => {
    const reads = createLargeReads();
    const held: ServerResponse[] = [];
    for (let i = 0; i < 6; i += 1) held.push(await hold(reads, `user ${Math.floor(i / 2)}`, largest));
    const refused = { reason: "RATE_LIMITED", retryAfterSeconds: 5 };
    await expect(hold(reads, "another", 1)).rejects.toMatchObject(refused);
    held[0]?.destroy();
    await until(() => hold(reads, "another", largest));
    await expect(hold(reads, "one more", 1)).rejects.toMatchObject(refused);
  });

  test("are not counted by their number", async () => {
    const reads = createLargeReads();
    for (let i = 0; i < 100; i += 1) await hold(reads, `user ${i}`, 1024);
  });
});

test("an answer that is full ends, with the newest rows, though escaped lines have many more bytes than they had", async () => {
  gate.resolve();
  pages = Array.from({ length: 100 }, (_, i) => (i === 0 ? "" : `${i}`));
  linesOnPage = ["\u0001".repeat(256 * 1024)];
  const response = await read();
  expect(response.status).toBe(200);
  const { logs } = JSON.parse(await response.text());
  expect(logs).toHaveLength(22);
  expect(logs.at(-1).log).toMatch(/^99 /);
});
