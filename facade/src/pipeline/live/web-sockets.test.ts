import { once } from "node:events";
import { Agent, type IncomingMessage, request as sendRequest } from "node:http";
import { connect, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { Role } from "@sandgate/proto/common/v1/access";
import { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import { until } from "@sandgate/test-support/until";
import { Type } from "typebox";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
  foreignWorkspaceId,
  openTestPlatform,
  sandboxMessage,
  type TestPlatform,
  userId,
  workspaceId,
} from "../../test-platform.ts";
import type { RoutePlugin } from "../route.ts";
import { WorkspaceHeaders } from "../validation/common-schemas.ts";
import { addWebSocketRoute } from "./web-sockets.ts";

/** More than the buffers of a connection take. */
const muchBytes = 32 * 1024 * 1024;
/** Sockets that are being served. */
let served = 0;

/** Sends back what it is sent, and much for "much", until that is "done" or "fail". */
const echoRoutes: RoutePlugin = async (app, context) => {
  addWebSocketRoute(app, context, {
    url: "/sandboxes/:sandbox_id/echo",
    config: { rules: { rpc: SandboxService.method.getSandbox, audit: "sandbox.read" } },
    schema: { headers: WorkspaceHeaders, querystring: Type.Object({ size: Type.Integer({ default: 1 }) }) },
    async serve(socket, _request, signal) {
      served += 1;
      try {
        for (;;) {
          const [data] = await once(socket, "message", { signal });
          if (String(data) === "done") return;
          if (String(data) === "fail") throw new Error("broken");
          socket.send(String(data) === "much" ? "x".repeat(muchBytes) : String(data));
        }
      } finally {
        served -= 1;
      }
    },
  });
};

/** Connections whose sockets are being admitted, until their clients have left. */
let admitting: Socket[] = [];

const slowRoutes: RoutePlugin = async (app, context) => {
  addWebSocketRoute(app, context, {
    url: "/sandboxes/:sandbox_id/slow",
    config: { rules: { rpc: SandboxService.method.getSandbox, audit: "sandbox.read" } },
    schema: { headers: WorkspaceHeaders },
    async admit({ raw }) {
      const left = new Promise((resolve) => raw.socket.once("close", resolve));
      admitting.push(raw.socket);
      await left;
    },
    serve: () => Promise.reject(new Error("served without a client")),
  });
};

let platform: TestPlatform;
let isClosed: boolean;
let url: string;
let headers: Record<string, string>;
const opened: WebSocket[] = [];

beforeEach(async () => {
  isClosed = false;
  platform = await openTestPlatform({
    env: { SANDGATE_RATE_LIMIT: "1000" },
    moreRoutes: [echoRoutes, slowRoutes],
    handlers: { sandbox: { getSandbox: () => ({ sandbox: sandboxMessage() }) } },
  });
  url = await platform.listen();
  headers = { authorization: `Bearer ${await platform.signAccessToken({ sid: "s9" })}`, "x-workspace-id": workspaceId };
});
afterEach(async () => {
  for (const socket of opened.splice(0)) socket.close();
  if (!isClosed) await platform.close();
});

interface Closed {
  code: number;
  reason: string;
}

/** Opens a socket and waits until it is open. Node's own client takes headers too, which its types don't have. */
async function open(path = "/sandboxes/box/echo") {
  const Client = WebSocket as unknown as new (
    address: string,
    options: { headers: Record<string, string> },
  ) => WebSocket;
  const socket = new Client(url.replace("http", "ws") + path, { headers });
  opened.push(socket);
  const closed = new Promise<Closed>((resolve) => {
    socket.addEventListener("close", ({ code, reason }) => resolve({ code, reason }));
  });
  await new Promise<void>((resolve, reject) => {
    socket.addEventListener("open", () => resolve());
    socket.addEventListener("error", () => reject(new Error("the socket did not open")));
  });
  const ask = async (text: string) => {
    const answer = once(socket, "message");
    socket.send(text);
    const [event] = await answer;
    return (event as MessageEvent).data;
  };
  return { socket, closed, ask };
}

const upgrading = {
  connection: "Upgrade",
  upgrade: "websocket",
  "sec-websocket-version": "13",
  "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
};

/** Asks for an upgrade, and returns the response, or the connection if there is one. */
async function upgrade(
  path: string,
  more: Record<string, string> = {},
  agent: Agent | false = false,
): Promise<{ response: IncomingMessage; body: string; socket?: Socket }> {
  const sent = sendRequest(url + path, { headers: { ...headers, ...upgrading, ...more }, agent }).end();
  const upgraded = once(sent, "upgrade") as Promise<[IncomingMessage, Socket]>;
  const answered = once(sent, "response") as Promise<[IncomingMessage]>;
  const [response, socket] = await Promise.race([upgraded, answered]);
  if (socket) return { response, body: "", socket };
  let body = "";
  for await (const chunk of response) body += chunk;
  return { response, body };
}

test("a WebSocket is served, and logged and measured like other requests once it has closed", async () => {
  const { socket, closed, ask } = await open();
  expect(await ask("a")).toBe("a");
  expect(await ask("b")).toBe("b");
  expect(platform.logLines.some((line) => line.includes('"request"'))).toBe(false);
  socket.send("done");
  expect(await closed).toEqual({ code: 1000, reason: "" });
  await until(() => expect(served).toBe(0));
  await until(() => {
    const lines = platform.logLines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === "request");
    expect(lines).toMatchObject([
      { method: "GET", route: "/sandboxes/:sandbox_id/echo", status: 101, user_id: userId, workspace_id: workspaceId },
    ]);
  });
});

test.each<[what: string, more: Record<string, string>, path: string, status: number, code: string]>([
  ["without a credential", { authorization: "" }, "", 401, "unauthenticated"],
  ["with a bad credential", { authorization: "Bearer x" }, "", 401, "invalid_token"],
  ["for another's workspace", { "x-workspace-id": foreignWorkspaceId }, "", 403, "workspace_forbidden"],
  ["with a bad field", {}, "?size=x", 422, "validation_error"],
  ["with a bad path", {}, "/no/such", 404, "not_found"],
])("an upgrade %s is refused by the usual response", async (_what, more, path, status, code) => {
  const { response, body } = await upgrade(`/sandboxes/box/echo${path}`, more);
  expect(response.statusCode).toBe(status);
  expect(response.headers).toMatchObject({
    "content-type": "application/json; charset=utf-8",
    "x-request-id": expect.any(String),
    "x-content-type-options": "nosniff",
    "ratelimit-limit": "1000",
  });
  expect(JSON.parse(body).error.code).toBe(code);
  expect(served).toBe(0);
});

test("a refused upgrade is in the audit log", async () => {
  await upgrade("/sandboxes/box/echo", { "x-workspace-id": foreignWorkspaceId });
  await until(() =>
    expect(platform.state.audited).toMatchObject([{ action: "sandbox.read", outcome: "workspace_forbidden" }]),
  );
});

test("its route answers only upgrades, and other routes don't upgrade", async () => {
  const plain = await platform.app.inject({ url: "/sandboxes/box/echo", headers });
  expect(plain.statusCode).toBe(422);
  expect(plain.json().error.details).toEqual([{ field: "header.upgrade", issue: "must be websocket" }]);
  for (const asked of ["websocket", "h2c"]) {
    const { response, body } = await upgrade("/sandboxes/box", { upgrade: asked });
    expect(response.statusCode).toBe(200);
    expect(JSON.parse(body).name).toBe("box");
  }
  const other = await upgrade("/sandboxes/box/echo", { upgrade: "h2c" });
  expect(other.response.statusCode).toBe(422);
});

test("an upgrade passes the prefix of the public address, a slash at the end, and a whole address as target", async () => {
  const { socket } = await upgrade("/v/sandboxes/box/echo/?size=2");
  expect(socket).toBeDefined();
  socket?.destroy();
  const path = "https://api.test/v/sandboxes/box/echo";
  const [response] = await once(sendRequest(url, { path, headers: { ...headers, ...upgrading } }).end(), "upgrade");
  expect(response.statusCode).toBe(101);
  response.socket.destroy();
});

test("a socket counts towards what its credential may have open, until it has closed", async () => {
  const all = await Promise.all(Array.from({ length: 100 }, () => open()));
  const refused = await upgrade("/sandboxes/box/echo");
  expect(refused.response.statusCode).toBe(429);
  expect(JSON.parse(refused.body).error.code).toBe("rate_limited");
  const [first] = all;
  first?.socket.close();
  await first?.closed;
  await until(async () => expect(await (await open()).ask("again")).toBe("again"));
});

test("a handshake that fails gives its slot back, and so does a client that has gone", async () => {
  for (let i = 0; i < 101; i++) {
    const { response } = await upgrade("/sandboxes/box/echo", { "sec-websocket-version": "7" });
    expect(response.statusCode).toBe(400);
  }
  for (let i = 0; i < 101; i++) {
    const { socket } = await upgrade("/sandboxes/box/echo");
    socket?.destroy();
    await until(() => expect(served).toBe(0));
  }
  expect(await (await open()).ask("a")).toBe("a");
});

test("a client that leaves before it is admitted gives its slot back", async () => {
  admitting = [];
  const lines = ["GET /sandboxes/box/slow HTTP/1.1", "Host: api.test"];
  for (const [name, value] of Object.entries({ ...headers, ...upgrading })) lines.push(`${name}: ${value}`);
  const clients = Array.from({ length: 101 }, () => connect(Number(new URL(url).port), "127.0.0.1"));
  for (const client of clients) client.write(`${lines.join("\r\n")}\r\n\r\n`);
  await until(() => expect(admitting).toHaveLength(101));
  for (const client of clients) client.resetAndDestroy();
  await until(() => expect(admitting.every(({ destroyed }) => destroyed)).toBe(true));
  expect(await (await open()).ask("a")).toBe("a");
  expect(platform.logLines.filter((line) => line.includes("unexpected"))).toEqual([]);
  const left = platform.logLines.map((line) => JSON.parse(line)).filter(({ status }) => status === 499);
  expect(left).toHaveLength(101);
});

test("it ends with the session and with the membership, also for a client that is frozen", async () => {
  const { closed } = await open();
  const frozen = await upgrade("/sandboxes/box/echo");
  frozen.socket?.pause();
  platform.bus.signal("identity.sessions.ended", "s9");
  expect(await closed).toEqual({ code: 4001, reason: "invalid_token" });
  await until(() => expect(served).toBe(0));
  frozen.socket?.destroy();

  headers.authorization = `Bearer ${await platform.signAccessToken({ sid: "s10" })}`;
  const member = await open();
  platform.state.role = Role.UNSPECIFIED;
  platform.bus.signal("workspace.membership", `${workspaceId} ${userId}`);
  expect(await member.closed).toEqual({ code: 4001, reason: "workspace_forbidden" });
});

test("one whose serving fails is closed, and the reason is logged only", async () => {
  const { socket, closed } = await open();
  socket.send("fail");
  expect(await closed).toEqual({ code: 1011, reason: "internal_error" });
  expect(platform.logLines.some((line) => line.includes("broken"))).toBe(true);
});

test("a drain closes it, and a shutdown waits for no client that is frozen", async () => {
  const { closed } = await open();
  const frozen = await upgrade("/sandboxes/box/echo");
  frozen.socket?.pause();
  await until(() => expect(served).toBe(2));
  await platform.drain();
  expect(await closed).toEqual({ code: 1001, reason: "draining" });
  const later = await upgrade("/sandboxes/box/echo");
  expect(later.response.statusCode).toBe(502);
  isClosed = true;
  const shutDown = platform.close().then(() => "shut down");
  expect(await Promise.race([shutDown, delay(20_000)])).toBe("shut down");
});

test("a shutdown cuts off nothing that was sent before, on a connection that was used before", async () => {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const [read]: IncomingMessage[] = await once(sendRequest(`${url}/healthz`, { agent }).end(), "response");
  const usedPort = read?.socket.localPort;
  read?.resume();
  await once(read ?? agent, "end");
  const { socket } = await upgrade("/sandboxes/box/echo", {}, agent);
  if (!socket) throw new Error("not upgraded");
  expect(socket.localPort).toBe(usedPort);
  // A masked frame with the text "much" (RFC 6455, 5.2); its mask is zero.
  socket.write(Buffer.from([0x81, 0x84, 0, 0, 0, 0, ...Buffer.from("much")]));
  await once(socket, "readable");
  isClosed = true;
  const closing = platform.close();
  await delay(100);
  let bytes = 0;
  let last = "";
  for await (const chunk of socket) {
    bytes += chunk.length;
    last = String(chunk.subarray(-20));
  }
  expect(bytes).toBeGreaterThan(muchBytes);
  expect(last).toContain("draining");
  await closing;
});

test("a shutdown says why an open socket ends", async () => {
  const { closed } = await open();
  isClosed = true;
  await platform.close();
  expect(await closed).toEqual({ code: 1001, reason: "draining" });
});
