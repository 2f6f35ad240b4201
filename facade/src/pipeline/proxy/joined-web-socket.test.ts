import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import { until } from "@sandgate/test-support/until";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { WebSocket } from "ws";
import { apiToken, frameOf, openTestPlatform, openWebSocket, type TestPlatform } from "../../test-platform.ts";
import { addWebSocketRoute } from "../live/web-sockets.ts";
import type { RoutePlugin } from "../route.ts";
import { WorkspaceHeaders } from "../validation/common-schemas.ts";
import { joinWebSocket } from "./joined-web-socket.ts";

/** What a server takes, one write after the other, once `gate` has settled. */
let taken: Buffer[];
let gate: { promise: Promise<void>; resolve: () => void };
let server: Duplex;
let joined: WebSocket;
let left: boolean;
let platform: TestPlatform;
let socket: Socket;

const routes: RoutePlugin = async (app, context) => {
  addWebSocketRoute(app, context, {
    url: "/sandboxes/:sandbox_id/joined",
    config: { rules: { rpc: SandboxService.method.getSandbox, audit: "sandbox.read" } },
    schema: { headers: WorkspaceHeaders },
    serve(served, _request, signal) {
      joined = served;
      signal.addEventListener("abort", () => {
        left = true;
      });
      return joinWebSocket(served, server, signal);
    },
  });
};

beforeEach(async () => {
  taken = [];
  left = false;
  gate = Promise.withResolvers();
  server = new Duplex({
    read: () => {},
    write(data, _encoding, done) {
      void gate.promise.then(() => {
        taken.push(data);
        done();
      });
    },
  });
  platform = await openTestPlatform({ moreRoutes: [routes] });
  const url = await platform.listen();
  socket = await openWebSocket(`${url}/sandboxes/box/joined`);
  socket.resume();
});
afterEach(async () => {
  gate.resolve();
  server.destroy();
  socket.destroy();
  await platform.close();
});

test("what waits for a server that takes nothing is joined, and frames without bytes are nothing", async () => {
  const small = Array<Buffer>(10_000).fill(Buffer.concat([frameOf(""), frameOf("x")]));
  socket.write(Buffer.concat([frameOf("first"), ...small, frameOf("last"), frameOf("", 8)]));
  await until(() => expect(left).toBe(true));
  expect(server.writableLength).toBe("first".length);
  gate.resolve();
  await until(() => expect(String(Buffer.concat(taken))).toBe(`first${"x".repeat(10_000)}last`));
  expect(taken).toHaveLength(2);
});

test("a server that sends single bytes is held by a client that takes none", async () => {
  const send = vi.spyOn(joined, "send").mockImplementation(() => {});
  for (let at = 0; at < 10_000; at++) server.push("x");
  await until(() => expect(server.isPaused()).toBe(true));
  expect(send.mock.calls.length).toBeLessThan(300);
});

test("what a client sent before it left reaches the server", async () => {
  socket.write(Buffer.concat([frameOf("first"), frameOf("last"), frameOf("", 8)]));
  await until(() => expect(left).toBe(true));
  expect(server.destroyed).toBe(false);
  gate.resolve();
  await until(() => expect(String(Buffer.concat(taken))).toBe("firstlast"));
  await until(() => expect(server.writableFinished).toBe(true));
});

test("what a client sent before it lost its access doesn't", async () => {
  socket.write(Buffer.concat([frameOf("first"), frameOf("last")]));
  await until(() => expect(server.writableLength).toBe("first".length));
  platform.state.revokedTokens.add(apiToken);
  platform.bus.signal("identity.api_tokens.revoked", "");
  await until(() => expect(server.destroyed).toBe(true));
  gate.resolve();
  await until(() => expect(socket.destroyed).toBe(true));
  expect(String(Buffer.concat(taken))).not.toContain("last");
});
