import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { type ClientRequest, request } from "node:http";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { openTestPlatform, sandboxMessage, type TestPlatform, userId, workspaceId } from "../test-platform.ts";
import { createNames } from "./names.ts";

const keys: [Buffer, Buffer] = [randomBytes(32), randomBytes(32)];
/** What a server in the sandbox answers to a request, and to one for a WebSocket. */
const answer = [
  "HTTP/1.1 200 OK",
  "Set-Cookie: a=1; Domain=e2b.test; Path=/",
  "Set-Cookie: __Host-sandgate=x; Path=/",
  "Content-Length: 0",
];
const upgraded = ["HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", "Upgrade: websocket"];

let platform: TestPlatform;
let url: string;
let host: string;
let isClosed: boolean;

beforeEach(async () => {
  isClosed = false;
  platform = await openTestPlatform({
    env: { SANDGATE_E2B_DOMAIN: "e2b.test" },
    handlers: {
      sandbox: {
        deriveKeys: () => ({ keys }),
        getSandboxWorkspace: () => ({ workspaceId, createdBy: userId }),
        getSandbox: () => ({ sandbox: sandboxMessage() }),
      },
      ports: {
        async *connectPort(parts, { signal }) {
          yield { part: { case: "connected", value: true } } as const;
          for await (const { part } of parts) {
            if (part.case !== "data") continue;
            const isUpgrade = /upgrade: websocket/i.test(Buffer.from(part.value).toString());
            const head = [...(isUpgrade ? upgraded : answer), "", ""].join("\r\n");
            yield { part: { case: "data", value: Buffer.from(head) } } as const;
            if (isUpgrade) await once(signal, "abort");
          }
        },
      },
    },
  });
  url = await platform.listen();
  const names = createNames({ sandbox: { deriveKeys: async () => ({ keys }) } as never });
  host = `3000-${await names.toSandboxName(sandboxMessage().id)}.e2b.test`;
});
afterEach(async () => {
  vi.useRealTimers();
  if (!isClosed) await platform.close();
});

const send = (headers: Record<string, string> = {}): ClientRequest =>
  request(url, { headers: { host, ...headers } }).end();

test("a server sets cookies for its own host alone, and never ours", async () => {
  const [answered] = await once(send(), "response");
  expect(answered.resume().statusCode).toBe(200);
  expect(answered.headers["set-cookie"]).toEqual(["a=1; Path=/"]);
});

test("an open WebSocket doesn't hold up the end of the facade", async () => {
  const [, socket] = await once(send({ connection: "Upgrade", upgrade: "websocket" }), "upgrade");
  isClosed = true;
  // The limit at which every connection is cut.
  vi.useFakeTimers({ toFake: ["setTimeout"] });
  const closed = platform.close();
  await once(socket.resume(), "close");
  vi.useRealTimers();
  await closed;
});
