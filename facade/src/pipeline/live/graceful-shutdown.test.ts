import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { text as textOf } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { until } from "@sandgate/test-support/until";
import Fastify from "fastify";
import { afterEach, expect, test } from "vitest";
import { apiToken, openTestPlatform, sandboxMessage, workspaceId } from "../../test-platform.ts";
import type { App } from "../base/app.ts";
import { createGracefulShutdown, type ShutdownLimits } from "./graceful-shutdown.ts";

const sockets: Socket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
});

/** Connects and sends this. */
async function send(url: string, text: string): Promise<Socket> {
  const socket = connect(Number(new URL(url).port), "127.0.0.1");
  sockets.push(socket);
  socket.on("error", () => {});
  await once(socket, "connect");
  socket.write(text);
  return socket;
}

/** All that comes until the connection ends, with a pause after each MiB. */
async function readSlowly(socket: Socket): Promise<number> {
  let bytes = 0;
  let pauses = 0;
  for await (const chunk of socket) {
    bytes += chunk.length;
    for (; pauses < Math.floor(bytes / 1024 ** 2); pauses++) await delay(20);
  }
  return bytes;
}

const request = (method: string, more = "") => `${method} / HTTP/1.1\r\nHost: x\r\n${more}\r\n`;
const bodyBytes = 24 * 1024 * 1024;

async function listen(limits?: Partial<ShutdownLimits>) {
  // As the facade has it.
  const app: App = Fastify({ return503OnClosing: false });
  const close = createGracefulShutdown(app.server, () => app.close(), limits);
  app.get("/", async () => "x".repeat(bodyBytes));
  app.post("/", async () => "");
  app.put("/", async (_request, reply) => {
    reply.hijack();
    await delay(1);
    reply.raw.writeHead(200, ["Content-Length", "0"]).end();
  });
  app.delete("/", (_request, reply) => {
    reply.hijack();
    reply.raw.writeHead(200).write("a part");
  });
  return { server: app.server, url: await app.listen({ host: "127.0.0.1", port: 0 }), close };
}

test("closes when an answer was read to its end, however slowly", async () => {
  const { url, close } = await listen();
  const socket = await send(url, request("GET"));
  await once(socket, "readable");
  const closed = close();
  expect(await readSlowly(socket)).toBeGreaterThan(bodyBytes);
  await closed;
});

test("closes although a client sends no request, or not all of it, or doesn't read its answer", async () => {
  const { url, close } = await listen({ firstRequestMs: 100, lastResponseMs: 500 });
  await send(url, "");
  await send(url, "GET / HT");
  await send(url, request("POST", "Content-Type: text/plain\r\nContent-Length: 10\r\n"));
  const unread = await send(url, request("GET"));
  unread.pause();
  await delay(100);
  await close();
});

test("an answer that it cuts is no whole one for a client of HTTP/1.0, which knows no chunks", async () => {
  const { url, close } = await listen({ lastResponseMs: 200 });
  const socket = await send(url, "DELETE / HTTP/1.0\r\n\r\n");
  await once(socket, "readable");
  const closed = close();
  await expect(textOf(socket)).rejects.toThrow("ECONNRESET");
  await closed;
});

/** Sends a request on an open connection, and returns what comes back. */
async function ask(socket: Socket, method = "POST"): Promise<string> {
  socket.write(request(method));
  const [answer] = await once(socket, "data");
  return String(answer);
}

test("answers a request that has arrived when it begins to close, and says that it closes", async () => {
  const { url, close } = await listen();
  const socket = await send(url, "");
  expect(await ask(socket)).toMatch(/^HTTP\/1.1 200 .*connection: keep-alive/is);
  const answer = ask(socket);
  const closed = close();
  expect(await answer).toMatch(/^HTTP\/1.1 200 .*connection: close/is);
  await closed;
});

test("an answer that a route writes itself says that it closes, too", async () => {
  const { server, url, close } = await listen();
  const socket = await send(url, "");
  expect(await ask(socket, "PUT")).toMatch(/^HTTP\/1.1 200 .*connection: keep-alive/is);
  const answer = ask(socket, "PUT");
  await once(server, "request");
  const closed = close();
  expect(await answer).toMatch(/^HTTP\/1.1 200 .*connection: close/is);
  await closed;
});

test("leaves connections without a request open for as long as it is told, and closes them then", async () => {
  const { url, close } = await listen({ idleMs: 1_500 });
  const [asking, idle] = [await send(url, ""), await send(url, "")];
  for (const socket of [asking, idle]) await ask(socket);
  const startedAt = performance.now();
  const closed = close();
  // Longer than connections are looked at.
  await delay(500);
  expect(await ask(asking)).toMatch(/^HTTP\/1.1 200 .*connection: close/is);
  await once(idle, "close");
  expect(performance.now() - startedAt).toBeGreaterThan(1_490);
  await closed;
});

test("ends a stream whose client had left before it began", async () => {
  let streams = 0;
  const platform = await openTestPlatform({
    handlers: {
      sandbox: {
        async getSandbox() {
          await delay(200);
          return { sandbox: sandboxMessage() };
        },
      },
      telemetry: {
        async *tailTelemetry(_request, { signal }) {
          streams++;
          if (!signal.aborted) await once(signal, "abort");
          streams--;
          yield* [];
        },
      },
    },
  });
  const headers = `Authorization: Bearer ${apiToken}\r\nX-Workspace-Id: ${workspaceId}\r\n`;
  const text = `GET /sandbox/monitoring/box/stream HTTP/1.1\r\nHost: x\r\n${headers}\r\n`;
  const url = await platform.listen();
  for (const leaveMs of [50, 300]) {
    const socket = await send(url, text);
    await delay(leaveMs);
    socket.destroy();
  }
  await delay(300);
  await until(() => expect(streams).toBe(0));
  await platform.close();
});
