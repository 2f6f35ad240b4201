import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { type ClientRequest, request } from "node:http";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { Role } from "@sandgate/proto/common/v1/access";
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
/** Whether workspace doesn't answer. */
let isAway: boolean;
/** Whether the account of the sandbox's creator is disabled. */
let isDisabled: boolean;

beforeEach(async () => {
  isClosed = false;
  isAway = false;
  isDisabled = false;
  platform = await openTestPlatform({
    env: { SANDGATE_E2B_DOMAIN: "e2b.test" },
    handlers: {
      identity: {
        batchGetUsers: ({ userIds }) => ({ users: userIds.map((id) => ({ id, disabled: isDisabled })) }),
      },
      workspace: {
        getMembership() {
          if (isAway) throw new DomainError("UPSTREAM_ERROR", "workspace does not answer");
          return { workspaceExists: true, role: Role.MEMBER };
        },
      },
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

const openSocket = async () => {
  const [, socket] = await once(send({ connection: "Upgrade", upgrade: "websocket" }), "upgrade");
  return socket.resume();
};

test("an open WebSocket outlasts half a minute in which access can't be checked, but not more than that", async () => {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval", "performance"] });
  const socket = await openSocket();
  isAway = true;
  let seconds = 0;
  const pass = async () => {
    await vi.advanceTimersByTimeAsync(1_000);
    seconds++;
    return socket.closed;
  };
  await expect.poll(pass, { interval: 20 }).toBe(true);
  expect(seconds).toBeGreaterThan(30);
});

test("once its creator's account is disabled, a sandbox's ports answer nobody, and what is open ends", async () => {
  const socket = await openSocket();
  const closed = once(socket, "close");
  isDisabled = true;
  await closed;
  const [refused] = await once(send(), "response");
  expect(refused.resume().statusCode).toBe(502);
  isDisabled = false;
  // What was found is remembered for a second.
  const ask = async () => {
    const [answered] = await once(send(), "response");
    return answered.resume().statusCode;
  };
  await expect.poll(ask).toBe(200);
});
