import { once } from "node:events";
import { type ClientRequest, type IncomingMessage, request } from "node:http";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { until } from "@sandgate/test-support/until";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openTestPlatform, sandboxMessage, type TestPlatform, workspaceId } from "../../test-platform.ts";

let platform: TestPlatform;
let url: string;
let headers: Record<string, string>;
/** What the server in the sandbox does with a connection. */
let server: "resets" | "stays";
/** Connections to it, which outlast the end of what is sent to it. */
let begun = 0;
let open = 0;

beforeEach(async () => {
  begun = 0;
  platform = await openTestPlatform({
    handlers: {
      sandbox: { getSandbox: () => ({ sandbox: sandboxMessage() }) },
      ports: {
        async *connectPort(_parts, { signal }) {
          begun += 1;
          open += 1;
          try {
            yield { part: { case: "connected", value: true } } as const;
            if (server === "resets") throw new DomainError("UPSTREAM_ERROR", "The connection was reset.");
            await once(signal, "abort");
          } finally {
            open -= 1;
          }
        },
      },
    },
  });
  url = await platform.listen();
  headers = {
    authorization: `Bearer ${await platform.signAccessToken()}`,
    "x-workspace-id": workspaceId,
    connection: "Upgrade",
    upgrade: "websocket",
    "sec-websocket-version": "13",
  };
});
afterEach(() => platform.close());

function connect(more: Record<string, string> = { "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==" }): ClientRequest {
  return request(`${url}/sandboxes/box/ports/8080/tcp`, { headers: { ...headers, ...more } })
    .on("error", () => undefined)
    .end();
}

test.each(["resets", "stays"] as const)("a failed handshake ends the connection to a server that %s", async (what) => {
  server = what;
  const [refused]: IncomingMessage[] = await once(connect({}), "response");
  expect(refused?.resume().statusCode).toBe(400);
  await until(() => expect([begun, open]).toEqual([1, 0]));
});

test("a connection that is reset before the handshake is over closes the WebSocket", async () => {
  server = "resets";
  const [, socket, head] = await once(connect(), "upgrade");
  const [frame] = head.length > 0 ? [head] : await once(socket, "data");
  socket.destroy();
  // It closes with the code 1011.
  expect(frame.subarray(0, 4).toString("hex")).toMatch(/^88..03f3$/);
});
