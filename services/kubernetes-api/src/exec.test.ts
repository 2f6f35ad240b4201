import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { buffer, text } from "node:stream/consumers";
import { test as baseTest } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { expect } from "vitest";
import { type WebSocket, WebSocketServer } from "ws";
import { openApi } from "./api.ts";
import { type ExecEnd, openExec } from "./exec.ts";

const failure = (message: string, causes: object[] = []) =>
  JSON.stringify({ status: "Failure", message, details: { causes } });
const onChannel = (channel: number, content: string | Buffer) =>
  Buffer.concat([Buffer.of(channel), Buffer.from(content)]);
const { signal } = new AbortController();

/** An API server that runs programs as this says, and a client of it. */
const test = baseTest.extend("serve", async ({ folder }, { onCleanup }) => {
  const closing: (() => unknown)[] = [];
  onCleanup(async () => {
    for (const close of closing) await close();
  });
  return async (o: { refuse?: number; protocols?: readonly string[]; run(socket: WebSocket): void }) => {
    const requests: { url: string; token: string | undefined }[] = [];
    const server = createServer().listen(0, "127.0.0.1");
    const sockets = new WebSocketServer({
      noServer: true,
      handleProtocols: (offered) => [...offered].find((each) => o.protocols?.includes(each) ?? true) ?? false,
    });
    server.on("upgrade", (request, socket, head) => {
      requests.push({ url: request.url ?? "", token: request.headers.authorization });
      if (o.refuse === undefined) sockets.handleUpgrade(request, socket, head, o.run);
      else {
        const body = JSON.stringify({ reason: "Refused", message: "as it was told" });
        socket.end(`HTTP/1.1 ${o.refuse} No\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`);
      }
    });
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    const path = join(folder, "kubeconfig");
    const setToken = (token: string) =>
      writeFile(
        path,
        JSON.stringify({
          clusters: [{ name: "c", cluster: { server: `http://127.0.0.1:${port}`, "insecure-skip-tls-verify": true } }],
          users: [{ name: "u", user: { token } }],
          contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
          "current-context": "c",
        }),
      );
    await setToken("first");
    const api = openApi(`kubernetes:${path}`, { writesPerSecond: 1_000, requestTimeoutMs: 5_000 });
    closing.push(api.close, () => {
      for (const client of sockets.clients) client.terminate();
      server.closeAllConnections();
      server.close();
    });
    const run = (command: string[] = ["cat"], aborting = signal): Promise<Duplex> =>
      openExec(api, { namespace: "n", pod: "p", container: "c" }, command, {
        signal: aborting,
        explainEnd: ({ exitCode, words }: ExecEnd) => new Error(`ended with ${exitCode}: ${words}`),
      });
    return { run, requests, setToken };
  };
});

/** Says what it is told, and ends with its input. */
function echo(socket: WebSocket): void {
  socket.on("message", (message: Buffer) => {
    for (let at = 1; message[0] === 0 && at < message.length; at += 32_768) {
      socket.send(onChannel(1, message.subarray(at, at + 32_768)));
    }
    if (!message.equals(Buffer.of(255, 0))) return;
    socket.send(onChannel(3, JSON.stringify({ status: "Success" })));
    socket.close();
  });
}

test("carries input and output both ways, until the program ends with its input", async ({ serve }) => {
  const { run, requests } = await serve({ run: echo });
  const stream = await run(["/helper", "a b&c"]);
  const sent = Buffer.alloc(3_000_000, "0123456789");
  stream.end(sent);
  expect((await buffer(stream)).equals(sent)).toBe(true);
  await until(() => expect(stream.destroyed).toBe(true));
  expect(requests).toEqual([
    {
      url: "/api/v1/namespaces/n/pods/p/exec?container=c&stdin=true&stdout=true&stderr=true&command=%2Fhelper&command=a+b%26c",
      token: "Bearer first",
    },
  ]);
});

test("an older server has no end of input but that of the connection", async ({ serve }) => {
  let closed = false;
  const { run } = await serve({
    protocols: ["v4.channel.k8s.io"],
    run: (socket) => socket.on("close", () => (closed = true)),
  });
  (await run())
    .on("error", () => {})
    .resume()
    .end("x");
  await until(() => expect(closed).toBe(true));
});

test("takes no more output than is read, and no more input than the server takes", async ({ serve }) => {
  const large = 64 * 1024 * 1024;
  let peer: WebSocket | undefined;
  const { run } = await serve({
    run(socket) {
      peer = socket;
      socket.pause();
      for (let sent = 0; sent < large; sent += 65_536) socket.send(onChannel(1, Buffer.alloc(65_536)));
      socket.send(onChannel(3, JSON.stringify({ status: "Success" })));
    },
  });
  const stream = await run();
  // Once the buffers of both sockets are full nothing goes on.
  let left = -1;
  await until(
    () => {
      const now = peer?.bufferedAmount ?? -1;
      const isStill = now === left;
      left = now;
      expect(isStill).toBe(true);
    },
    { intervalMs: 200 },
  );
  expect(left).toBeGreaterThan(large / 2);
  let written = 0;
  while (written < large && stream.write(Buffer.alloc(65_536))) written += 65_536;
  expect(written).toBeLessThan(large / 2);
  let read = 0;
  for await (const chunk of stream) read += chunk.length;
  expect(read).toBe(large);
});

test("a program that says nothing ends with its exit code and errors, or the node's words", async ({ serve }) => {
  const ends: [status: string, said: string][] = [
    [failure("command terminated", [{ reason: "ExitCode", message: "64" }]), "ended with 64: usage"],
    [failure("stat /helper: no such file or directory"), "ended with null: stat /helper: no such file or directory"],
    [JSON.stringify({ status: "Success" }), "ended with 0: usage"],
    ["nonsense", "ended with null: nonsense"],
  ];
  for (const [status, said] of ends) {
    const { run } = await serve({
      run(socket) {
        socket.send(onChannel(1, ""));
        socket.send(onChannel(2, "usage"));
        socket.send(onChannel(3, status));
      },
    });
    await expect(text(await run())).rejects.toThrow(said);
  }
});

test("a connection that breaks off is no end", async ({ serve }) => {
  const { run } = await serve({
    run(socket) {
      socket.send(onChannel(1, "half"), () => socket.terminate());
    },
  });
  await expect(text(await run())).rejects.toThrow("the connection to the API server was lost");
});

test("says what the server refuses, and reads the credentials again after a 401", async ({ serve }) => {
  const forbidden = await serve({ refuse: 403, run: echo });
  await expect(forbidden.run()).rejects.toMatchObject({ status: 403, reason: "Refused", message: "as it was told" });
  const { run, requests, setToken } = await serve({ refuse: 401, run: echo });
  await setToken("second");
  await expect(run()).rejects.toMatchObject({ status: 401 });
  await expect(run()).rejects.toMatchObject({ status: 401 });
  expect(requests.map(({ token }) => token)).toEqual(["Bearer first", "Bearer second"]);
});

test("is given up by its signal until it is open, and not after", async ({ serve }) => {
  const { run } = await serve({ run: echo });
  const aborting = new AbortController();
  const stream = await run(["cat"], aborting.signal);
  aborting.abort(new Error("too late"));
  stream.end("on");
  expect(await text(stream)).toBe("on");
  await expect(run(["cat"], aborting.signal)).rejects.toThrow("too late");
  const opening = new AbortController();
  const opened = run(["cat"], opening.signal);
  opening.abort(new Error("no longer wanted"));
  await expect(opened).rejects.toThrow("no longer wanted");
});
