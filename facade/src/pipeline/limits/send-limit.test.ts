import { once } from "node:events";
import { type AddressInfo, connect, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { until } from "@sandgate/test-support/until";
import Fastify, { type FastifyInstance } from "fastify";
import { afterAll, beforeAll, expect, test } from "vitest";
import { limitSending } from "./send-limit.ts";

const ms = 100;
let app: FastifyInstance;
/** Connections that the server has accepted, and those that it still has. */
let accepted = 0;
let open = 0;

beforeAll(async () => {
  app = Fastify();
  limitSending(app, { ms });
  app.get("/large", () => "x".repeat(32 * 1024 * 1024));
  app.get("/slow", () => delay(5 * ms, "slow"));
  app.get("/fast", () => "fast");
  app.server.on("connection", (socket) => {
    accepted += 1;
    open += 1;
    socket.once("close", () => {
      open -= 1;
    });
  });
  await app.listen({ host: "127.0.0.1", port: 0 });
});
afterAll(() => app.close());

async function send(...paths: string[]): Promise<Socket> {
  const socket = connect((app.server.address() as AddressInfo).port, "127.0.0.1");
  socket.on("error", () => {});
  await once(socket, "connect");
  socket.write(paths.map((path) => `GET ${path} HTTP/1.1\r\nHost: api\r\n\r\n`).join(""));
  return socket;
}

test("a client that takes nothing of an answer is cut off, also one that sends line breaks", async () => {
  const silent = await send("/large");
  const busy = await send("/large");
  const sending = setInterval(() => busy.write("\r\n"), ms / 4);
  await until(() => expect({ accepted, open }).toEqual({ accepted: 2, open: 0 }));
  clearInterval(sending);
  for (const socket of [silent, busy]) socket.destroy();
});

test("one that takes some of it again and again is not", async () => {
  const socket = await send("/large");
  let received = 0;
  socket.on("data", async (chunk: Buffer) => {
    received += chunk.length;
    socket.pause();
    await delay(1);
    socket.resume();
  });
  await until(() => expect(received).toBeGreaterThan(32 * 1024 * 1024));
  socket.destroy();
});

test("an answer that takes longer to come is not, also where another request was answered before", async () => {
  const socket = await send("/fast", "/slow", "/fast", "/slow");
  let text = "";
  socket.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
  });
  await until(() => expect(text.match(/fast|slow/g)).toEqual(["fast", "slow", "fast", "slow"]));
  socket.destroy();
});
