import { once } from "node:events";
import { type AddressInfo, connect, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { until } from "@sandgate/test-support/until";
import Fastify from "fastify";
import { expect, onTestFinished, test, vi } from "vitest";
import { limitSending } from "./send-limit.ts";

const mebibyte = 1024 * 1024;

async function serve(ms: number) {
  const app = Fastify();
  limitSending(app, { ms });
  app.get("/large", () => "x".repeat(32 * mebibyte));
  app.get("/larger", () => "x".repeat(96 * mebibyte));
  app.get("/slow", () => delay(5 * ms, "slow"));
  app.get("/fast", () => "fast");
  /** Requests that came, and those whose answers have been handed over. */
  const requests = { begun: 0, answered: 0 };
  app.addHook("onRequest", (_request, _reply, done) => {
    requests.begun += 1;
    done();
  });
  app.addHook("onSend", (_request, _reply, payload, done) => {
    requests.answered += 1;
    done(null, payload);
  });
  /** Connections that the server has accepted, and those that it still has. */
  const connections = { accepted: 0, open: 0 };
  app.server.on("connection", (socket) => {
    connections.accepted += 1;
    connections.open += 1;
    socket.once("close", () => {
      connections.open -= 1;
    });
  });
  await app.listen({ host: "127.0.0.1", port: 0 });
  onTestFinished(() => app.close());
  const send = async (...paths: string[]): Promise<Socket> => {
    const socket = connect((app.server.address() as AddressInfo).port, "127.0.0.1");
    onTestFinished(() => void socket.destroy());
    socket.on("error", () => {});
    await once(socket, "connect");
    socket.write(paths.map((path) => `GET ${path} HTTP/1.1\r\nHost: api\r\n\r\n`).join(""));
    return socket;
  };
  return { connections, requests, send };
}

test("a client that takes nothing of an answer is cut off, also one that sends line breaks", async () => {
  const { connections, send } = await serve(100);
  await send("/large");
  const busy = await send("/large");
  const sending = setInterval(() => busy.write("\r\n"), 25);
  onTestFinished(() => clearInterval(sending));
  await until(() => expect(connections).toEqual({ accepted: 2, open: 0 }));
});

test("one that takes some of it again and again is not", async () => {
  // The system says that there is space only once a third of its buffer is free: that is many chunks, and takes a busy
  // machine a second. The whole takes longer than a client may take nothing.
  const { send } = await serve(3_000);
  const socket = await send("/larger");
  let received = 0;
  socket.on("data", async (chunk: Buffer) => {
    received += chunk.length;
    socket.pause();
    await delay(5);
    socket.resume();
  });
  await until(() => expect(received).toBeGreaterThan(96 * mebibyte));
});

test("an answer that takes longer to come is not, also where another request was answered before", async () => {
  const { send } = await serve(100);
  const socket = await send("/fast", "/slow", "/fast", "/slow");
  let text = "";
  socket.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
  });
  await until(() => expect(text.match(/fast|slow/g)).toEqual(["fast", "slow", "fast", "slow"]));
});

test("of a client that leaves nothing stays, also when it left before its answer", async () => {
  const started = vi.spyOn(globalThis, "setInterval");
  const ended = vi.spyOn(globalThis, "clearInterval");
  onTestFinished(() => void vi.restoreAllMocks());
  const { requests, send } = await serve(100);
  await once(await send("/fast"), "data");
  const left = await send("/slow");
  await until(() => expect(requests.begun).toBe(2));
  left.destroy();
  await until(() => expect(requests.answered).toBe(2));
  await until(() =>
    expect(ended.mock.calls.map(([timer]) => timer)).toEqual(started.mock.results.map(({ value }) => value)),
  );
  expect(started).toHaveBeenCalled();
});
