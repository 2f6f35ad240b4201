import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer, type IncomingMessage, request, type Server } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { hourMs } from "@sandgate/kit/base/time";
import { createInMemoryNetwork } from "@sandgate/kit/rpc/clients";
import { Role } from "@sandgate/proto/common/v1/access";
import { PortService } from "@sandgate/proto/sandbox/v1/ports";
import { PreviewAccess, PreviewService } from "@sandgate/proto/sandbox/v1/previews";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { afterEach, beforeEach, expect, test } from "vitest";
import { readFacadeSettings } from "../settings.ts";
import { type Gateway, openGateway } from "./gateway.ts";

const label = "abcdefghijklmnopqrstuvwxyz";
const previewId = "01900000-0000-7000-8000-000000000001";
const expiresAt = () => timestampFromMs(Date.now() + hourMs);

let server: Server;
let gateway: Gateway;
let port: number;
let waiting: IncomingMessage[];
let isMember: boolean;

/** The gateway in front of small services: one public preview, of a server that answers nothing at /wait. */
beforeEach(async () => {
  waiting = [];
  isMember = true;
  server = createServer((asked, response) => {
    if (asked.url === "/wait") waiting.push(asked);
    else if (asked.url === "/open") asked.socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    else response.end(`${asked.headers.host} ${asked.url}`);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port: served } = server.address() as AddressInfo;
  const logger = createLogger({ service: "test", level: "silent" });
  const metrics = createMetrics();
  const network = await createInMemoryNetwork();
  const preview = { id: previewId, workspaceId: previewId, createdBy: previewId, label, port: 3000, public: true };
  network.serve("sandbox", {
    logger,
    metrics,
    routes(router) {
      router.service(PreviewService, {
        resolvePreview(asked) {
          if (asked.label !== label) throw new DomainError("NOT_FOUND", "There is no such preview.");
          return { preview: { ...preview, expiresAt: expiresAt() }, access: PreviewAccess.GRANTED };
        },
        checkPreviews: ({ previewIds }) => ({
          previews: previewIds.map((id) => ({ previewId: id, expiresAt: expiresAt() })),
        }),
      });
      router.service(PortService, {
        async *connectPreview(requests, { signal }) {
          const socket = connect({ port: served, signal });
          const sending = async () => {
            for await (const { part } of requests) if (part.case === "data") socket.write(part.value);
          };
          sending().catch(() => socket.destroy());
          yield { part: { case: "connected" as const, value: true } };
          for await (const value of socket) yield { part: { case: "data" as const, value: value as Uint8Array } };
        },
      });
    },
  });
  network.serve("workspace", {
    logger,
    metrics,
    routes: (router) =>
      router.service(WorkspaceService, {
        getMembership: () => ({ workspaceExists: true, role: isMember ? Role.MEMBER : Role.UNSPECIFIED }),
      }),
  });
  const settings = readFacadeSettings({ SANDGATE_PORT: "0", SANDGATE_PREVIEW_DOMAIN: "box.example.net" });
  const transport = (service: Parameters<typeof network.transport>[1]) => network.transport("gateway", service);
  gateway = openGateway({ transport, logger, metrics }, settings);
  port = Number(new URL(await gateway.listen()).port);
});
afterEach(async () => {
  for (const each of waiting) each.socket.destroy();
  await gateway.close();
  server.close();
});

async function get(path: string, host = `${label}.box.example.net`): Promise<{ status: number; text: string }> {
  const sent = request({ port, host: "127.0.0.1", path, headers: { host }, agent: false }).end();
  const [answer]: IncomingMessage[] = await once(sent, "response");
  let text = "";
  for await (const chunk of answer ?? []) text += chunk;
  return { status: answer?.statusCode ?? 0, text };
}

test("serves previews on their hosts, and nothing on any other", async () => {
  expect(await get("/a?b=1")).toEqual({ status: 200, text: `${label}.box.example.net /a?b=1` });
  for (const host of [`${"b".repeat(26)}.box.example.net`, "box.example.net", "localhost", "api.example.com"]) {
    const { status, text } = await get("/healthz", host);
    expect([status, JSON.parse(text).error.code], host).toEqual([404, "not_found"]);
  }
});

test("a WebSocket is asked for by a connection that waits for nothing else", async () => {
  const socket = connect(port, "127.0.0.1");
  const host = `Host: ${label}.box.example.net\r\n`;
  socket.write(
    `GET /wait HTTP/1.1\r\n${host}\r\nGET / HTTP/1.1\r\n${host}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`,
  );
  await expect.poll(() => waiting.length).toBe(1);
  // It stays whole.
  expect((await get("/")).status).toBe(200);
  socket.destroy();
});

test("a connection ends with an answer, though the server keeps it open", async () => {
  const headers = { host: `${label}.box.example.net` };
  const sent = request({ port, host: "127.0.0.1", path: "/open", method: "POST", headers, agent: false }).end("x");
  const [answer]: IncomingMessage[] = await once(sent, "response");
  answer?.resume();
  await once(sent, "close");
  const connections = promisify(server.getConnections.bind(server));
  await expect.poll(() => connections()).toBe(0);
});

test("while it closes, the answer on a connection that was kept is its last", async () => {
  const socket = connect(port, "127.0.0.1");
  const ask = (path: string) => socket.write(`GET ${path} HTTP/1.1\r\nHost: ${label}.box.example.net\r\n\r\n`);
  let text = "";
  socket.on("data", (data) => {
    text += data;
  });
  ask("/");
  await expect.poll(() => text).toMatch(/^HTTP\/1.1 200 .*Connection: keep-alive.*example.net \//s);
  text = "";
  ask("/wait");
  await expect.poll(() => waiting.length).toBe(1);
  const closed = gateway.close();
  waiting[0]?.socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  await closed;
  await expect.poll(() => text).toMatch(/^HTTP\/1.1 200 .*Connection: close.*ok$/is);
});

test.runIf(process.platform === "linux")(
  "a client that vanishes is noticed, since its connection is probed",
  async () => {
    const socket = connect(port, "127.0.0.1");
    await once(socket, "connect");
    const hex = (value: number | undefined) => value?.toString(16).toUpperCase().padStart(4, "0");
    // Local and remote port, state, queues, and the timer that runs: 02 is that of probes.
    const probed = new RegExp(`:${hex(port)} \\w+:${hex(socket.localPort)} \\w+ \\w+:\\w+ 02:`);
    const connections = async () => {
      const lists = ["tcp", "tcp6"].map((list) => readFile(`/proc/net/${list}`, "utf8").catch(() => ""));
      return (await Promise.all(lists)).join("");
    };
    await expect.poll(connections).toMatch(probed);
    socket.destroy();
  },
);

test("a preview is gone a second after its creator's membership", async () => {
  expect((await get("/")).status).toBe(200);
  isMember = false;
  await expect.poll(async () => (await get("/")).status, { timeout: 10_000 }).toBe(404);
});

test("a preview has 256 requests open at once", async () => {
  // As many a second as it takes.
  const hold = async () => {
    const { status } = await get("/wait").catch(() => ({ status: 0 }));
    if (status !== 429) return;
    await delay(100);
    await hold();
  };
  const open = Array.from({ length: 256 }, hold);
  await expect.poll(() => waiting.length).toBe(256);
  await expect.poll(async () => JSON.parse((await get("/")).text).error.message).toContain("256");
  for (const each of waiting.splice(0)) each.socket.destroy();
  await Promise.all(open);
  await expect.poll(async () => (await get("/")).status).toBe(200);
});
