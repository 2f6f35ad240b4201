import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from "node:net";
import { text as textOf } from "node:stream/consumers";
import { hasReason, messageOf } from "@sandgate/kit/base/domain-error";
import { afterEach, describe, expect, test } from "vitest";
import { openPortAgent } from "./agent.ts";
import { type ProxyTarget, proxyRequest, proxyUpgrade } from "./http-proxy.ts";

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

const portOf = (server: { address(): unknown }) => (server.address() as AddressInfo).port;

/** A server that gives each connection to `serve`, and how many it had. */
async function listen(serve: (socket: Socket) => void) {
  let connections = 0;
  const sockets = new Set<Socket>();
  const server = createTcpServer((socket) => {
    connections++;
    sockets.add(socket);
    socket.on("error", () => {});
    serve(socket);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  closing.push(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return { port: portOf(server), connections: () => connections, sockets };
}

/** A server that answers each request with this text, as it is. Returns what it was sent, too. */
async function answering(text: string, o: { thenEnd?: boolean } = {}) {
  const received: string[] = [];
  const server = await listen((socket) => {
    socket.on("data", (data) => {
      received.push(data.toString("latin1"));
      socket.write(text, "latin1");
      if (o.thenEnd) socket.end();
    });
  });
  return { ...server, received };
}

/** What is asked of the server at this port. */
function targetAt(port: number): ProxyTarget {
  return {
    connect: () => connect(port, "127.0.0.1"),
    path: "/",
    host: "localhost:3000",
    forwarded: { for: "192.0.2.7", proto: "https", host: "box.example" },
    replaced: { authorization: undefined },
    changeAnswer: (name, value) => (name === "x-secret" ? undefined : value),
    added: ["X-Added", "1"],
    signal: new AbortController().signal,
  };
}

test("a request whose client has left before it is passed on is not passed on", async () => {
  const server = await listen(() => {});
  const outcome = Promise.withResolvers<string>();
  const gone = createServer((request, response) => {
    response.once("close", () => {
      proxyRequest(request, response, targetAt(server.port)).then(
        () => outcome.resolve("answered"),
        (error) => outcome.resolve(messageOf(error.cause)),
      );
    });
  }).listen(0, "127.0.0.1");
  await once(gone, "listening");
  closing.push(() => gone.close());
  const client = connect(portOf(gone), "127.0.0.1");
  client.on("error", () => {});
  client.write("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nabc");
  await once(gone, "request");
  client.resetAndDestroy();
  expect(await outcome.promise).toBe("the client has left");
  expect(server.connections()).toBe(0);
});

/** A proxy in front of the server at this port. Errors are answered with their status and their words. */
async function openProxy(port: number, given: Partial<ProxyTarget> = {}) {
  const settled: Promise<unknown>[] = [];
  const targetOf = ({ url = "/" }: IncomingMessage): ProxyTarget => ({ ...targetAt(port), path: url, ...given });
  const refuse = (response: ServerResponse) => (error: unknown) => {
    if (response.destroyed || response.headersSent) return;
    const status = hasReason(error, "VALIDATION_ERROR") ? 422 : 502;
    response.writeHead(status).end(messageOf(error));
  };
  const server = createServer({ requireHostHeader: false }, (request, response) => {
    settled.push(proxyRequest(request, response, targetOf(request)).catch(refuse(response)));
  }).listen(0, "127.0.0.1");
  server.on("upgrade", async (request, socket, head) => {
    const { ServerResponse } = await import("node:http");
    const response = new ServerResponse(request);
    response.assignSocket(socket as Socket);
    socket.on("error", () => {});
    if (head.length > 0) socket.unshift(head);
    settled.push(proxyUpgrade(request, response, targetOf(request)).catch(refuse(response)));
  });
  await once(server, "listening");
  closing.push(() => {
    server.close();
    server.closeAllConnections();
  });
  return { port: portOf(server), url: `http://127.0.0.1:${portOf(server)}`, settled };
}

/** Sends bytes, and returns all that comes until the connection ends. */
async function exchange(port: number, text: string): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  socket.write(text, "latin1");
  let answer = "";
  socket.on("data", (data) => {
    answer += data.toString("latin1");
  });
  socket.on("error", () => {});
  await once(socket, "close");
  return answer;
}

const closeHeaders = "Host: box.example\r\nConnection: close\r\n";

describe("of a request", () => {
  test("what is of the connection, what Connection names and what says who forwarded it is not passed on", async () => {
    const server = await answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    const proxy = await openProxy(server.port);
    const headers = [
      "Host: evil.example",
      "Connection: close, X-Named, Cookie",
      "X-Named: 1",
      "Cookie: a=1",
      "Keep-Alive: 5",
      "TE: trailers",
      "Upgrade: h2c",
      "Proxy-Authorization: Basic eA==",
      "Authorization: Bearer secret",
      "X-Forwarded-For: 10.0.0.1",
      "X-Forwarded-Port: 1",
      "X_Forwarded_For: 10.0.0.1",
      "Forwarded: for=10.0.0.1",
      "X-Two: a",
      "X-Two: b",
    ];
    await exchange(proxy.port, `GET /a%2Fb//c?x=%20 HTTP/1.1\r\n${headers.join("\r\n")}\r\n\r\n`);
    expect(server.received).toEqual([
      [
        "GET /a%2Fb//c?x=%20 HTTP/1.1",
        "Host: localhost:3000",
        "X-Two: a",
        "X-Two: b",
        "X-Forwarded-For: 192.0.2.7",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: box.example",
        "Connection: close",
        "",
        "",
      ].join("\r\n"),
    ]);
  });

  test.for([
    ["a length and an encoding", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
    ["two lengths", "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde"],
    ["a list of lengths", "Content-Length: 4, 4\r\n\r\nabcd"],
    ["an encoding beside chunked", "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"],
    ["chunked twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
    ["an encoding that hides chunked", "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n"],
    ["a bare CR", "X-A: 1\rContent-Length: 4\r\n\r\n"],
    ["a bare LF", "X-A: 1\nContent-Length: 4\r\n\r\nabcd"],
    ["a space before the colon", "Content-Length : 4\r\n\r\nabcd"],
    ["a negative length", "Content-Length: -4\r\n\r\n"],
  ])("%s is refused and reaches nobody", async ([, text]) => {
    const server = await answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    const proxy = await openProxy(server.port);
    const answer = await exchange(proxy.port, `POST / HTTP/1.1\r\n${closeHeaders}${text}`);
    expect(answer).toMatch(/^HTTP\/1\.1 4/);
    expect(server.received).toEqual([]);
  });

  test("an encoding by HTTP/1.0 is refused and reaches nobody", async () => {
    const server = await answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    const proxy = await openProxy(server.port);
    expect(await exchange(proxy.port, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")).toMatch(
      /^HTTP\/1\.1 4/,
    );
    expect(server.received).toEqual([]);
  });
});

describe("of an answer", () => {
  test("what is of the connection, what Connection names and what is left out is not passed on", async () => {
    const server = await answering(
      "HTTP/1.1 201 Whatever\r\nConnection: keep-alive, X-Named\r\nX-Named: 1\r\nX-Secret: 1\r\nKeep-Alive: timeout=9\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 2\r\n\r\nok",
    );
    const proxy = await openProxy(server.port);
    const response = await fetch(proxy.url);
    expect([response.status, await response.text()]).toEqual([201, "ok"]);
    const headers = Object.fromEntries(response.headers);
    expect(headers).toMatchObject({ "content-length": "2", "x-added": "1" });
    expect(response.headers.getSetCookie()).toEqual(["a=1", "b=2"]);
    for (const name of ["x-named", "x-secret"]) expect(headers).not.toHaveProperty(name);
    expect(headers["keep-alive"]).not.toContain("9");
  });

  test.for([
    ["no HTTP", "SSH-2.0-OpenSSH\r\n"],
    ["a length and an encoding", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
    ["two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde"],
    ["an encoding beside chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"],
    ["a bare CR", "HTTP/1.1 200 OK\r\nX-A: 1\rX-B: 2\r\nContent-Length: 0\r\n\r\n"],
    ["another protocol unasked", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"],
    ["another protocol without a name", "HTTP/1.1 101 Switching Protocols\r\n\r\n"],
    ["a status that is none", "HTTP/1.1 099 No\r\nContent-Length: 0\r\n\r\n"],
    ["too many headers", `HTTP/1.1 200 OK\r\n${"X-A: 1\r\n".repeat(10_000)}\r\n`],
    ["nothing", ""],
  ] as const)("%s is an upstream error", async ([, text]) => {
    const server = await answering(text, { thenEnd: true });
    const proxy = await openProxy(server.port);
    const response = await fetch(proxy.url);
    expect(response.status, await response.text()).toBe(502);
  });

  test("one that breaks off is broken off, by its length and by its chunks", async () => {
    for (const head of ["Content-Length: 10\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"]) {
      const server = await answering(`HTTP/1.1 200 OK\r\n${head}`, { thenEnd: true });
      const proxy = await openProxy(server.port);
      const response = await fetch(proxy.url);
      await expect(response.text()).rejects.toThrow();
    }
  });

  test("one that breaks off is no whole one for a client of HTTP/1.0, which knows no chunks", async () => {
    const text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    const server = await answering(text, { thenEnd: true });
    const client = connect((await openProxy(server.port)).port, "127.0.0.1");
    client.write("GET / HTTP/1.0\r\n\r\n");
    await expect(textOf(client)).rejects.toThrow("ECONNRESET");
  });

  test("HEAD, 204 and 304 have no body, and HEAD has the length", async () => {
    const server = await answering("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
    const proxy = await openProxy(server.port);
    const head = await fetch(proxy.url, { method: "HEAD" });
    expect([head.status, head.headers.get("content-length"), await head.text()]).toEqual([200, "1000", ""]);
    for (const status of [204, 304]) {
      const empty = await answering(`HTTP/1.1 ${status} X\r\nETag: "1"\r\n\r\n`);
      const response = await fetch((await openProxy(empty.port)).url);
      expect([response.status, response.headers.get("etag"), await response.text()]).toEqual([status, '"1"', ""]);
    }
  });

  test("one without a length ends with its connection", async () => {
    const server = await answering("HTTP/1.0 200 OK\r\n\r\nall of it", { thenEnd: true });
    expect(await (await fetch((await openProxy(server.port)).url)).text()).toBe("all of it");
    const reset = await answering("HTTP/1.0 200 OK\r\n\r\npart of it");
    const response = await fetch((await openProxy(reset.port)).url);
    for (const socket of reset.sockets) socket.resetAndDestroy();
    await expect(response.text()).rejects.toThrow();
  });
});

test("nothing listens: what the connection failed with is thrown, and the rest of the body is read", async () => {
  const server = await listen(() => {});
  closing.pop()?.();
  const proxy = await openProxy(server.port);
  expect((await fetch(proxy.url)).status).toBe(502);
  // Many clients read nothing until they have sent everything.
  const client = connect(proxy.port, "127.0.0.1");
  const length = 32 * 1024 * 1024;
  client.write(`POST / HTTP/1.1\r\nHost: box.example\r\nContent-Length: ${length}\r\n\r\n`);
  await new Promise((sent) => client.write(Buffer.alloc(length), sent));
  const [answer] = await once(client, "data");
  expect(String(answer)).toMatch(/^HTTP\/1\.1 502 /);
  client.destroy();
});

describe("bodies", () => {
  test("of both kinds pass both ways while they come", async () => {
    const server = createServer((request, response) => {
      response.writeHead(200, { "x-length": request.headers["content-length"] ?? "chunked" });
      request.pipe(response);
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    closing.push(() => server.close());
    const proxy = await openProxy(portOf(server));
    const text = "x".repeat(3_000_000);
    const whole = await fetch(proxy.url, { method: "POST", body: text });
    expect([whole.headers.get("x-length"), (await whole.text()) === text]).toEqual(["3000000", true]);
    const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
    const writer = writable.getWriter();
    const encode = (word: string) => new TextEncoder().encode(word);
    void writer.write(encode("first"));
    const streamed = await fetch(proxy.url, { method: "PUT", body: readable, duplex: "half" } as RequestInit);
    expect(streamed.headers.get("x-length")).toBe("chunked");
    const reader = streamed.body?.getReader();
    expect(new TextDecoder().decode((await reader?.read())?.value)).toBe("first");
    void writer.write(encode("second"));
    expect(new TextDecoder().decode((await reader?.read())?.value)).toBe("second");
    await writer.close();
    expect((await reader?.read())?.done).toBe(true);
  });

  test("a client that reads nothing holds the server", async () => {
    let written = 0;
    const server = await listen((socket) => {
      socket.once("data", () => {
        socket.write("HTTP/1.1 200 OK\r\n\r\n");
        const chunk = Buffer.alloc(64 * 1024);
        const more = () => {
          do written += chunk.length;
          while (socket.write(chunk));
        };
        socket.on("drain", more);
        more();
      });
    });
    const proxy = await openProxy(server.port);
    const client = connect(proxy.port, "127.0.0.1");
    client.write(`GET / HTTP/1.1\r\n${closeHeaders}\r\n`);
    await once(client, "readable");
    await expect.poll(() => written).toBeGreaterThan(64 * 1024);
    let last = -1;
    const standsStill = () => {
      const before = last;
      last = written;
      return before === written;
    };
    await expect.poll(standsStill, { interval: 500 }).toBe(true);
    expect(written).toBeLessThan(16 * 1024 * 1024);
    client.destroy();
    await expect.poll(() => [...server.sockets].every(({ destroyed }) => destroyed)).toBe(true);
  });

  test("small chunks of an answer are joined while earlier ones are sent", async () => {
    const server = await listen((socket) => {
      socket.once("data", () => {
        socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        socket.write("1\r\nx\r\n".repeat(100_000));
        socket.write("0\r\n\r\n");
      });
    });
    const proxy = await openProxy(server.port);
    const answer = await exchange(proxy.port, `GET / HTTP/1.1\r\n${closeHeaders}\r\n`);
    const [, body = ""] = answer.split("\r\n\r\n", 2);
    const chunks = body.match(/[0-9a-f]+\r\nx+\r\n/g) ?? [];
    expect(chunks.join("").replace(/[^x]/g, "")).toHaveLength(100_000);
    expect(chunks.length).toBeLessThan(10_000);
  });

  test("a client that leaves ends the request", async () => {
    const server = await listen((socket) => void socket.resume());
    const proxy = await openProxy(server.port);
    const client = connect(proxy.port, "127.0.0.1");
    client.write(`GET / HTTP/1.1\r\n${closeHeaders}\r\n`);
    await expect.poll(() => server.connections()).toBe(1);
    client.destroy();
    await expect.poll(() => [...server.sockets].every(({ destroyed }) => destroyed)).toBe(true);
  });

  test("the signal ends what is open", async () => {
    const end = new AbortController();
    const server = await answering("HTTP/1.1 200 OK\r\n\r\nfirst");
    const proxy = await openProxy(server.port, { signal: end.signal });
    const response = await fetch(proxy.url);
    end.abort();
    await expect(response.text()).rejects.toThrow();
    await expect.poll(() => [...server.sockets].every(({ destroyed }) => destroyed)).toBe(true);
  });
});

describe("with an agent", () => {
  test("a connection serves one request after another", async () => {
    const server = await answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    const proxy = await openProxy(server.port, { pool: { agent: openPortAgent(), key: "one" } });
    for (let times = 0; times < 5; times++) expect(await (await fetch(proxy.url)).text()).toBe("ok");
    expect(server.connections()).toBe(1);
  });

  test("answers without a body leave nothing on the connection", async () => {
    const server = await answering("HTTP/1.1 204 No Content\r\n\r\n");
    const connections: Socket[] = [];
    const proxy = await openProxy(server.port, {
      connect: () => connections[connections.push(connect(server.port, "127.0.0.1")) - 1] as Socket,
      pool: { agent: openPortAgent(), key: "one" },
    });
    const listeners = [];
    for (const method of ["GET", "GET", "HEAD", "GET"]) {
      expect((await fetch(proxy.url, { method })).status).toBe(204);
      listeners.push(connections[0]?.listenerCount("error"));
    }
    expect(connections).toHaveLength(1);
    expect(new Set(listeners).size).toBe(1);
  });

  test("a request is repeated whose kept connection the server had closed, and none with a body is sent over one", async () => {
    const server = await listen((socket) => {
      let requests = 0;
      // The second request of a connection finds it closing.
      socket.on("data", () => {
        if (++requests > 1) socket.destroy();
        else socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
      });
    });
    const proxy = await openProxy(server.port, { pool: { agent: openPortAgent(), key: "one" } });
    for (const method of ["GET", "GET", "POST", "GET", "DELETE"]) {
      expect((await fetch(proxy.url, { method })).status, method).toBe(200);
    }
  });
});

describe("a WebSocket", () => {
  const ask = [
    "GET /socket HTTP/1.1",
    "Host: box.example",
    "Connection: keep-alive, Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
    "",
    "",
  ].join("\r\n");
  const accepted =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

  test("passes all bytes both ways, those beside the handshake included, until one side ends", async () => {
    const received: Buffer[] = [];
    const server = await listen((socket) => {
      socket.once("data", (head) => {
        const text = head.toString("latin1");
        expect(text).toContain("Connection: Upgrade\r\nUpgrade: websocket\r\n");
        expect(text).toContain("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n");
        socket.write(`${accepted}hello`, "latin1");
        const rest = text.split("\r\n\r\n")[1] ?? "";
        received.push(Buffer.from(rest, "latin1"));
        socket.on("data", (data) => received.push(data));
        socket.on("end", () => socket.end("bye"));
      });
    });
    const proxy = await openProxy(server.port);
    const client = connect({ port: proxy.port, host: "127.0.0.1", allowHalfOpen: true });
    let answer = "";
    client.on("data", (data) => {
      answer += data.toString("latin1");
    });
    client.write(`${ask}early`);
    await expect.poll(() => answer).toContain("\r\n\r\nhello");
    expect(answer).toMatch(/^HTTP\/1\.1 101 Switching Protocols\r\n/);
    expect(answer).toContain("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n");
    const bytes = Buffer.from(Array.from({ length: 70_000 }, (_, at) => at % 256));
    client.end(bytes);
    await once(client, "close");
    expect(answer.endsWith("bye")).toBe(true);
    expect(Buffer.concat(received).equals(Buffer.concat([Buffer.from("early"), bytes]))).toBe(true);
    await Promise.all(proxy.settled);
  });

  test("that the server refuses is answered with its answer", async () => {
    const server = await answering("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    const answer = await exchange((await openProxy(server.port)).port, ask);
    expect(answer).toMatch(/^HTTP\/1\.1 403 /);
    expect(answer.endsWith("no")).toBe(true);
  });

  test.each([
    ["something else", "Connection: Upgrade\r\nUpgrade: h2c\r\n"],
    ["nothing that it names", ""],
  ])("is an upstream error when the server switches to %s", async (_, headers) => {
    const server = await answering(`HTTP/1.1 101 Switching Protocols\r\n${headers}\r\n`);
    const proxy = await openProxy(server.port);
    const socket = connect(proxy.port, "127.0.0.1");
    socket.write(ask);
    const [answer] = await once(socket, "data");
    expect(String(answer)).toMatch(/^HTTP\/1\.1 502 /);
    socket.destroy();
  });

  test("whose answer has headers that can't be passed on is an upstream error, and so is its connection's end", async () => {
    const server = await listen((socket) => {
      socket.once("data", () => {
        socket.write(accepted.replace("Upgrade: websocket", "Upgrade: websocket\r\nTransfer-Encoding: gzip"), "latin1");
        setImmediate(() => socket.resetAndDestroy());
      });
    });
    const socket = connect((await openProxy(server.port)).port, "127.0.0.1");
    socket.write(ask);
    const [answer] = await once(socket, "data");
    expect(String(answer)).toMatch(/^HTTP\/1\.1 502 /);
    socket.destroy();
    await expect.poll(() => [...server.sockets].every(({ destroyed }) => destroyed)).toBe(true);
  });

  test.each([
    ["nothing more", "", ""],
    ["bytes beside its request", "early", ""],
    ["nothing more, and gets a refusal that doesn't end", "", "HTTP/1.1 200 OK\r\n\r\nfirst"],
  ])("whose client leaves before it is open ends on both sides; it has sent %s", async (_, early, refusal) => {
    const server = await answering(refusal);
    const client = connect((await openProxy(server.port)).port, "127.0.0.1");
    client.write(`${ask}${early}`);
    if (refusal) await once(client, "data");
    else await expect.poll(() => server.received.join("")).toContain("GET /socket");
    client.end();
    await expect.poll(() => [...server.sockets].every(({ destroyed }) => destroyed)).toBe(true);
  });

  test("is cut by the signal, on both sides", async () => {
    const end = new AbortController();
    const server = await answering(accepted);
    const proxy = await openProxy(server.port, { signal: end.signal });
    const client = connect(proxy.port, "127.0.0.1");
    client.on("error", () => {});
    client.write(ask);
    await once(client, "data");
    end.abort();
    await once(client, "close");
    await expect.poll(() => [...server.sockets].every(({ destroyed }) => destroyed)).toBe(true);
  });
});
