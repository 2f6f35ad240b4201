import { once } from "node:events";
import { connect } from "node:net";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { apiToken, openTestPlatform, type TestPlatform, workspaceId } from "../../test-platform.ts";

let platform: TestPlatform;
let port: number;
let arrived: PromiseWithResolvers<void>;
let left: PromiseWithResolvers<void>;

const part = <P>(value: P) => ({ part: value });

beforeAll(async () => {
  platform = await openTestPlatform({
    handlers: {
      ports: {
        /** A server that answers with the first line of a request; for /begun with the begin of an answer, for /silent with nothing. */
        async *connectPort(requests, { signal }) {
          yield part({ case: "connected" as const, value: true });
          let head = "";
          for await (const { part } of requests) {
            if (part.case === "data") head += Buffer.from(part.value).toString();
            if (head.includes("\r\n\r\n")) break;
          }
          const [line = ""] = head.split("\r\n");
          arrived.resolve();
          if (line.includes("/silent")) {
            await once(signal, "abort");
            left.resolve();
            return;
          }
          const isWhole = !line.includes("/begun");
          const answer = `HTTP/1.1 200 OK\r\nContent-Length: ${isWhole ? line.length : 1000}\r\n\r\n${line}`;
          yield part({ case: "data" as const, value: Buffer.from(answer) });
          if (!isWhole) await once(signal, "abort");
          left.resolve();
        },
      },
    },
  });
  port = Number(new URL(await platform.listen()).port);
});
afterAll(() => platform.close());

const own = [`Authorization: Bearer ${apiToken}`, `X-Workspace-Id: ${workspaceId}`, "Host: api.test"];

beforeEach(() => {
  arrived = Promise.withResolvers();
  left = Promise.withResolvers();
});

/** Sends a request, then more once something of its answer has come, and returns all that comes after the header. */
async function exchange(target: string, headers: readonly string[], body = "", more = ""): Promise<string> {
  left = Promise.withResolvers();
  const socket = connect(port, "127.0.0.1").on("error", () => {});
  socket.write(`POST ${target} HTTP/1.1\r\n${[...own, ...headers].join("\r\n")}\r\n\r\n${body}`);
  let text = "";
  socket.on("data", (chunk) => {
    text += chunk;
    if (text.includes("POST /")) socket.write(more);
  });
  await once(socket, "close");
  await left.promise;
  return text.slice(text.indexOf("\r\n\r\n") + 4);
}

test("the server gets the path as it was sent, also of a whole address", async () => {
  for (const address of ["", "/v", "http://api.test", "https://api.test/v"]) {
    const target = `${address}/sandboxes/box/ports/80/http/a/../b?x=http://c/d`;
    const answer = await exchange(target, ["Content-Length: 0", "Connection: close"]);
    expect(answer).toBe("POST /a/../b?x=http://c/d HTTP/1.1");
  }
});

test("bytes that can't be read break off an answer that has begun", async () => {
  const target = "/sandboxes/box/ports/80/http/begun";
  const received = await exchange(target, ["Transfer-Encoding: chunked"], "3\r\nabc\r\n", "no chunk\r\n");
  expect(received).toBe("POST /begun HTTP/1.1");
});

test("a client that leaves before its WebSocket is open leaves the server, too", async () => {
  const socket = connect(port, "127.0.0.1").on("error", () => {});
  const headers = [...own, "Connection: Upgrade", "Upgrade: websocket"];
  socket.write(`GET /sandboxes/box/ports/80/http/silent HTTP/1.1\r\n${headers.join("\r\n")}\r\n\r\n`);
  await arrived.promise;
  socket.end();
  await left.promise;
});
