import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { createLogger } from "@sandgate/kit/base/logging";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createErrorResponder } from "../errors/responses.ts";
import { limitReceiving } from "./receive-limit.ts";

const ms = 60_000;
const logger = createLogger({ service: "test", level: "silent" });
const { respondToUnreadable } = createErrorResponder({ docsUrl: "", headers: {}, logger });

const server = createServer((request) => void request.resume());
server.on("clientError", (error, socket) => respondToUnreadable(error, socket as Socket));
limitReceiving(server, { ms, onLate: respondToUnreadable });

beforeEach(async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
});
afterEach(() => {
  vi.useRealTimers();
  server.close();
  server.closeAllConnections();
});

test.each([
  { what: "a body that comes too late", sent: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nfirst" },
  { what: "what is no HTTP", sent: "SSH-2.0-OpenSSH\r\n" },
])("a connection with $what is answered and then cut, though its client ends nothing", async ({ sent }) => {
  const accepted = once(server, "connection");
  const client = connect({ port: (server.address() as AddressInfo).port, host: "127.0.0.1", allowHalfOpen: true });
  const answered = Promise.all([once(client, "data"), once(client, "end")]);
  client.write(sent);
  const [connection]: Socket[] = await accepted;
  await expect.poll(() => connection?.bytesRead).toBe(sent.length);
  vi.advanceTimersByTime(ms);
  const [[answer]] = await answered;
  expect(String(answer)).toMatch(/^HTTP\/1\.1 422 /);
  vi.advanceTimersByTime(10_000);
  expect(connection?.destroyed).toBe(true);
  client.destroy();
});
