import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { type ConnectRouter, createClient } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { startServiceHost } from "@sandgate/kit/process/host";
import { createInMemoryNetwork, createRemoteTransport } from "@sandgate/kit/rpc/clients";
import { asFacade } from "@sandgate/kit/rpc/context";
import { createInternalKeys, createTokenVerifier } from "@sandgate/kit/rpc/internal-auth";
import { type ConnectPreviewRequest, PortService } from "@sandgate/proto/sandbox/v1/ports";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openPortStream } from "./port-stream.ts";

const logger = createLogger({ service: "test", level: "silent" });
const previewId = "01900000-0000-7000-8000-000000000001";
const part = <P>(value: P) => ({ part: value });

/** Connects as the sandbox service does, to whatever port is set. */
function serve(portOf: () => number) {
  return (router: ConnectRouter) =>
    router.service(PortService, {
      async *connectPreview(requests, { signal }) {
        const server = connect({ port: portOf(), allowHalfOpen: true });
        signal.addEventListener("abort", () => server.destroy());
        await once(server, "connect").catch(() => {
          throw new DomainError("UPSTREAM_ERROR", "Nothing listens.");
        });
        void send(requests, server).catch(() => server.destroy());
        yield part({ case: "connected" as const, value: true });
        for await (const value of server) yield part({ case: "data" as const, value: value as Uint8Array });
        yield part({ case: "eof" as const, value: true });
      },
    });
}

async function send(requests: AsyncIterable<ConnectPreviewRequest>, server: Socket): Promise<void> {
  for await (const { part } of requests) {
    if (part.case === "data" && !server.write(part.value)) await once(server, "drain");
    if (part.case === "eof") return void server.end();
  }
}

async function openNetwork(kind: "memory" | "HTTP/2", portOf: () => number) {
  if (kind === "memory") {
    const network = await createInMemoryNetwork();
    network.serve("sandbox", { routes: serve(portOf), logger, metrics: createMetrics() });
    return { transport: network.transport("facade", "sandbox"), close: async () => {} };
  }
  const keys = await createInternalKeys(["facade"]);
  const host = await startServiceHost({
    service: "sandbox",
    routes: serve(portOf),
    verifier: createTokenVerifier({ audience: "sandbox", jwks: keys.jwks }),
    logger,
    metrics: createMetrics(),
    host: "127.0.0.1",
    port: 0,
    drainMs: 0,
  });
  const transport = createRemoteTransport({ url: host.url, signer: keys.signer("facade"), audience: "sandbox" });
  return { transport, close: () => host.close() };
}

describe.each(["memory", "HTTP/2"] as const)("a connection over %s", (kind) => {
  let port = 0;
  let network: Awaited<ReturnType<typeof openNetwork>>;
  beforeAll(async () => {
    network = await openNetwork(kind, () => port);
  });
  afterAll(() => network.close());

  const open = () =>
    openPortStream({ previewId }, (requests, options) =>
      createClient(PortService, network.transport).connectPreview(requests, {
        ...asFacade({ requestId: "r" }),
        ...options,
      }),
    );
  async function listen(accept: (socket: Socket) => void) {
    const sockets: Socket[] = [];
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      sockets.push(socket);
      socket.on("error", () => {});
      accept(socket);
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    ({ port } = server.address() as AddressInfo);
    return {
      sockets,
      close() {
        server.close();
        for (const socket of sockets) socket.destroy();
      },
    };
  }

  test("passes bytes both ways at once, and ends once both sides have", async () => {
    const server = await listen((socket) => void socket.pipe(socket));
    const stream = open();
    await once(stream, "connect");
    const sent = Buffer.alloc(3_000_000, "0123456789");
    stream.end(sent);
    const chunks: Buffer[] = [];
    for await (const chunk of stream) chunks.push(chunk as Buffer);
    expect(Buffer.concat(chunks).equals(sent)).toBe(true);
    expect([stream.bytesRead, stream.bytesWritten]).toEqual([sent.length, sent.length]);
    await expect.poll(() => server.sockets.map(({ destroyed }) => destroyed)).toEqual([true]);
    server.close();
  });

  test("the server's end ends it, and what it had said comes", async () => {
    const server = await listen((socket) => socket.end("bye"));
    const stream = open();
    const closed = once(stream, "close");
    let text = "";
    stream.on("data", (data) => {
      text += data;
    });
    await closed;
    expect(text).toBe("bye");
    server.close();
  });

  test("the server's end ends it, though the server takes nothing of what is written", async () => {
    const server = await listen((socket) => {
      socket.pause();
      setTimeout(() => socket.end("bye"), 300);
    });
    const stream = open();
    const closed = once(stream, "close");
    stream.resume();
    const chunk = randomBytes(64 * 1024);
    while (stream.write(chunk)) await new Promise(setImmediate);
    await closed;
    expect(stream.writableFinished).toBe(true);
    server.close();
  });

  test("whoever reads nothing holds the sender, either way", async () => {
    let taken = 0;
    // It can't be compressed.
    const chunk = randomBytes(64 * 1024);
    const flood = (to: { write(data: Buffer): boolean; on(event: "drain", more: () => void): unknown }) => {
      const more = () => {
        do taken += chunk.length;
        while (to.write(chunk));
      };
      to.on("drain", more);
      more();
    };
    const standsStill = async () => {
      let last = -1;
      const isStill = () => {
        const before = last;
        last = taken;
        return before === last;
      };
      await expect.poll(isStill, { interval: 300 }).toBe(true);
      expect(taken).toBeLessThan(24 * 1024 * 1024);
    };
    const speaking = await listen(flood);
    const unread = open();
    await once(unread, "connect");
    await standsStill();
    unread.destroy();
    await expect.poll(() => speaking.sockets.map(({ destroyed }) => destroyed)).toEqual([true]);
    speaking.close();
    taken = 0;
    const silent = await listen((socket) => void socket.pause());
    const blocked = open();
    await once(blocked, "connect");
    flood(blocked);
    await standsStill();
    blocked.destroy();
    silent.close();
  });

  test("fails as the call does", async () => {
    const server = await listen(() => {});
    server.close();
    const [error] = await once(open(), "error");
    expect(error).toMatchObject({ reason: "UPSTREAM_ERROR" });
  });
});
