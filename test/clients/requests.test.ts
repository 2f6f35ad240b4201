import { execFile } from "node:child_process";
import { once } from "node:events";
import { lstat, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { Readable } from "node:stream";
import { promisify } from "node:util";
import {
  BadSettings,
  ConnectionFailed,
  createSession,
  RateLimited,
  Sandgate,
  TimedOut,
  UpstreamError,
} from "@sandgate/client";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";

let server: Server;
let requests: { method: string; url: string; headers: IncomingMessage["headers"]; body: string }[];
let answer: (response: ServerResponse, count: number) => void;
let sandgate: Sandgate;
const workspace = "01900000-0000-7000-8000-00000000000a";

beforeEach(async () => {
  requests = [];
  server = createServer((request, response) => {
    const seen = { method: request.method ?? "", url: request.url ?? "", headers: request.headers, body: "" };
    requests.push(seen);
    request
      .on("data", (chunk) => {
        seen.body += chunk;
      })
      .once("end", () => answer(response, requests.length));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  vi.spyOn(Math, "random").mockReturnValue(0);
  vi.stubEnv("SANDGATE_CONFIG", "/nonexistent");
  sandgate = new Sandgate({ url: url(), token: "t", workspace });
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  vi.unstubAllGlobals();
  server.closeAllConnections();
  server.close();
});

const url = () => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
const send = (response: ServerResponse, status: number, body: unknown, headers = {}) =>
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
const fail = (response: ServerResponse, status: number, code: string, headers = {}) =>
  send(response, status, { error: { code, message: code, retryable: [429, 500, 502].includes(status) } }, headers);

describe("the workspace of a client", () => {
  const named = (id: string, name: string) => ({ id, name, role: "owner" });
  const list = { workspaces: [named("a", "one"), named("b", "two"), named("c", "two")], next_cursor: null };

  test("is the default one unless it is named, whatever else is in the list", async () => {
    answer = (response) => send(response, 200, { ...list, default_workspace_id: workspace });
    expect(await new Sandgate({ url: url(), token: "t" }).workspaceId()).toBe(workspace);
    answer = (response) => send(response, 200, { ...list, default_workspace_id: null });
    const nowhere = new Sandgate({ url: url(), token: "t" }).workspaceId();
    await expect(nowhere).rejects.toThrow("You have no workspace of your own.");
  });

  test("is the only one of its name", async () => {
    answer = (response) => send(response, 200, { ...list, default_workspace_id: workspace });
    expect(await sandgate.forWorkspace("one").workspaceId()).toBe("a");
    await expect(sandgate.forWorkspace("two").workspaceId()).rejects.toThrow('You have several workspaces "two".');
    await expect(sandgate.forWorkspace("three").workspaceId()).rejects.toThrow('You have no workspace "three".');
  });
});

describe("requests that may be repeated are tried again", () => {
  test("three times at most", async () => {
    answer = (response) => fail(response, 502, "upstream_error");
    await expect(sandgate.images.get("a")).rejects.toBeInstanceOf(UpstreamError);
    expect(requests).toHaveLength(4);
  });

  test("where the connection broke off, with the same Idempotency-Key for a creation", async () => {
    answer = (response, count) =>
      count < 3 ? void response.socket?.destroy() : send(response, 201, { id: "w", created_at: "now" });
    const made = await sandgate.workspaces.create({ name: "w" });
    expect(made).toMatchObject({ id: "w", createdAt: "now" });
    const keys = requests.map(({ headers }) => headers["idempotency-key"]);
    expect(keys).toEqual([expect.stringMatching(/^[0-9a-f-]{36}$/), keys[0], keys[0]]);
  });

  test("where an answer was cut in the middle", async () => {
    answer = (response, count) => {
      if (count > 1) return void send(response, 200, { id: "w" });
      response.writeHead(200, { "content-type": "application/json", "content-length": "100" }).write('{"id"');
      setTimeout(() => response.socket?.destroy(), 20);
    };
    expect(await sandgate.workspaces.get("w")).toEqual({ id: "w" });
  });

  test("not before the time that the server names", async () => {
    answer = (response, count) =>
      count === 1 ? fail(response, 429, "rate_limited", { "retry-after": "1" }) : send(response, 200, { id: "w" });
    const begun = performance.now();
    await sandgate.workspaces.get("w");
    expect(performance.now() - begun).toBeGreaterThan(990);
  });
});

describe("nothing is tried again", () => {
  test.each([
    { retryAfter: "13", timeoutMs: 3_000 },
    { retryAfter: "61", timeoutMs: undefined },
  ])("that would have to wait too long: %o", async ({ retryAfter, timeoutMs }) => {
    answer = (response) => fail(response, 429, "rate_limited", { "retry-after": retryAfter });
    await expect(sandgate.sandboxes.create("default", { timeoutMs })).rejects.toBeInstanceOf(RateLimited);
    expect(requests).toHaveLength(1);
  });

  test("that the server will refuse again", async () => {
    answer = (response) => fail(response, 409, "conflict");
    await expect(sandgate.images.get("a")).rejects.toMatchObject({ code: "conflict" });
    expect(requests).toHaveLength(1);
  });

  test("that may have been done, and can't be done twice", async () => {
    answer = (response) => void response.socket?.destroy();
    const files = (await sandboxAfter(() => sandgate.sandboxes.get("box"))).files;
    requests.length = 0;
    answer = (response) => void response.socket?.destroy();
    await expect(files.rename("/a", "/b")).rejects.toBeInstanceOf(ConnectionFailed);
    expect(requests).toHaveLength(1);
  });
});

describe("a body that can be read once", () => {
  const contents = {
    "an iterable": async function* () {
      yield "one";
    },
    "a stream of Node.js": () => Readable.from([Buffer.from("one")]),
    "a stream": () => new Blob(["one"]).stream(),
  };

  test.each(Object.entries(contents))("is sent once, and fails with its answer: %s", async (_, content) => {
    const { files } = await sandboxAfter(() => sandgate.sandboxes.get("box"));
    const refresh = vi.fn(async ({ refused }: { refused?: string }) => (refused === undefined ? "old" : "new"));
    const session = new Sandgate({ url: url(), token: refresh, workspace });
    const renewed = (await sandboxAfter(() => session.sandboxes.get("box"))).files;
    requests.length = 0;
    for (const [status, code] of [
      [429, "rate_limited"],
      [503, "sandbox_not_ready"],
      [401, "invalid_token"],
    ] as const) {
      answer = (response) => send(response, status, { error: { code, message: code, retryable: status !== 401 } });
      await expect(renewed.write("/a", content())).rejects.toMatchObject({ code });
      await expect(files.writeArchive("/a", content())).rejects.toMatchObject({ code });
    }
    expect(requests.map(({ body }) => body)).toEqual(Array(6).fill("one"));
  });

  test("fails with what reading it failed with, as a local file does", async () => {
    const { files } = await sandboxAfter(() => sandgate.sandboxes.get("box"));
    await using folder = await createTempFolder();
    requests.length = 0;
    async function* content() {
      yield "one";
      throw new RangeError("broken");
    }
    await expect(files.write("/a", content())).rejects.toThrow(RangeError);
    await expect(files.upload(folder.path, "/a")).rejects.toMatchObject({ code: "EISDIR" });
    expect(requests.length).toBeLessThanOrEqual(2);
  });

  test("is a local pipe, too; a local file is read again", async () => {
    const { files } = await sandboxAfter(() => sandgate.sandboxes.get("box"));
    await using folder = await createTempFolder();
    const [pipe, file] = [join(folder.path, "pipe"), join(folder.path, "file")];
    await promisify(execFile)("mkfifo", [pipe]);
    await writeFile(file, "one");
    requests.length = 0;
    answer = (response, count) =>
      count < 3 ? fail(response, 429, "rate_limited") : send(response, 200, { path: "/a" });
    await Promise.all([
      writeFile(pipe, "one"),
      expect(files.upload(pipe, "/a")).rejects.toMatchObject({ code: "rate_limited" }),
    ]);
    await files.upload(file, "/a");
    expect(requests.map(({ body }) => body)).toEqual(["one", "one", "one"]);
  });
});

test("a download to where nothing can be written ends its connection", async () => {
  const { files } = await sandboxAfter(() => sandgate.sandboxes.get("box"));
  let closed = false;
  answer = (response) => {
    response.once("close", () => {
      closed = true;
    });
    response.writeHead(200, { "content-type": "application/octet-stream" }).write("content");
  };
  await expect(files.download("/a", "/nonexistent/a")).rejects.toThrow("ENOENT");
  await vi.waitFor(() => expect(closed).toBe(true));
});

test("a download goes through a link, and into a pipe or a device as it is", async () => {
  const { files } = await sandboxAfter(() => sandgate.sandboxes.get("box"));
  await using folder = await createTempFolder();
  const [pipe, file, link] = [join(folder.path, "pipe"), join(folder.path, "file"), join(folder.path, "link")];
  await promisify(execFile)("mkfifo", [pipe]);
  await writeFile(file, "before");
  await symlink("file", link);
  answer = (response) => response.writeHead(200, { "content-type": "application/octet-stream" }).end("content");
  const [read, size] = await Promise.all([readFile(pipe, "utf8"), files.download("/a", pipe)]);
  expect([read, size]).toEqual(["content", 7]);
  expect((await lstat(pipe)).isFIFO()).toBe(true);
  await files.download("/a", link);
  expect((await lstat(link)).isSymbolicLink()).toBe(true);
  expect(await readFile(file, "utf8")).toBe("content");
  expect((await readdir(folder.path)).toSorted()).toEqual(["file", "link", "pipe"]);
});

test.each(["", ".", ".."])("an id never makes another request of it: %j", async (id) => {
  const sandbox = await sandboxAfter(() => sandgate.sandboxes.get("box"));
  requests.length = 0;
  answer = (response) => response.writeHead(204).end();
  const calls = [
    () => sandgate.apiTokens.delete(id),
    () => sandgate.members.delete(id),
    () => sandgate.images.get(id),
    () => sandbox.ports.close(id),
    () => sandbox.ports.get(id),
  ];
  for (const call of calls) await expect(call()).rejects.toBeInstanceOf(BadSettings);
  await expect(sandgate.account.ssoUrl(id)).rejects.toBeInstanceOf(BadSettings);
  expect(requests).toEqual([]);
});

test("a write to a process begins where others have written to, or after what was taken of one that failed", async () => {
  const { commands } = await sandboxAfter(() => sandgate.sandboxes.get("box"));
  answer = (response) => send(response, 200, { id: "p" });
  const process = await commands.connect("p");
  let taken = 0;
  requests.length = 0;
  answer = (response, count) => {
    taken += requests[count - 1]?.body.length ?? 0;
    // The answer to the second write doesn't come.
    if (count !== 4) send(response, 200, { offset: taken, closed: false });
  };
  await process.write("x");
  taken += "from another".length;
  await expect(process.write("abc", { timeoutMs: 2_000 })).rejects.toBeInstanceOf(TimedOut);
  await process.write("DEF");
  await process.closeStdin();
  const stdin = "/sandboxes/s/processes/p/stdin";
  expect(requests.map(({ url, body }) => [url, body])).toEqual([
    [stdin, ""],
    [`${stdin}?offset=0`, "x"],
    [stdin, ""],
    [`${stdin}?offset=13`, "abc"],
    [stdin, ""],
    [`${stdin}?offset=16`, "DEF"],
    [`${stdin}?eof=true`, ""],
  ]);
});

test("a long input is joined to few requests, with the offsets of what was written", async () => {
  const { commands } = await sandboxAfter(() => sandgate.sandboxes.get("box"));
  const [chunk, count] = ["x".repeat(64 * 1024), 80];
  let written = 0;
  let exit = () => {};
  requests.length = 0;
  answer = (response, n) => {
    const { method, url, body } = requests[n - 1] ?? { method: "", url: "", body: "" };
    if (url.includes("/output")) {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.flushHeaders();
      const ended = { type: "exit", process: { id: "p", state: "exited", exit_code: 0 } };
      exit = () => response.end(`id: 0\nevent: exit\ndata: ${JSON.stringify(ended.process)}\n\n`);
    } else if (url.includes("/stdin")) {
      if (!url.includes("eof")) expect(url).toMatch(new RegExp(`offset=${written}$`));
      written += body.length;
      send(response, 200, { offset: written, closed: false });
      if (url.includes("eof")) exit();
    } else {
      send(response, method === "POST" ? 201 : 200, { id: "p", state: "running" });
    }
  };
  async function* content() {
    for (let i = 0; i < count; i++) yield chunk;
  }
  expect(await commands.run("cat", { stdin: content() })).toMatchObject({ exitCode: 0 });
  expect(written).toBe(count * chunk.length);
  // The first chunk is alone, and then each has four of these.
  expect(requests.filter(({ url }) => url.includes("/stdin")).length).toBeLessThan(count / 2);
});

describe("the credential stays with the port that a request is for", () => {
  test.each(["../../..", "/a/../../80", "%2E%2e/80", "..\\80"])("with a path that leads out: %s", async (path) => {
    const sandbox = await sandboxAfter(() => sandgate.sandboxes.get("box"));
    requests.length = 0;
    await expect(sandbox.fetch(80, path, { method: "DELETE" })).rejects.toBeInstanceOf(BadSettings);
    expect(requests).toEqual([]);
    answer = (response) => response.writeHead(204).end();
    await sandbox.fetch(80, "/a/../b%2Fc%20d?e=/../f");
    expect(requests.map(({ url }) => url)).toEqual(["/sandboxes/s/ports/80/http/b%2Fc%20d?e=/../f"]);
  });

  test("with a redirect, which is an answer", async () => {
    const sandbox = await sandboxAfter(() => sandgate.sandboxes.get("box"));
    requests.length = 0;
    answer = (response) => response.writeHead(307, { location: `/workspaces/${workspace}` }).end();
    const { status, headers } = await sandbox.fetch(80, "/", { method: "DELETE", redirect: "follow" });
    expect([status, headers.get("location")]).toEqual([307, `/workspaces/${workspace}`]);
    expect(requests).toHaveLength(1);
  });
});

/** Answers one request with a sandbox. */
async function sandboxAfter<T>(work: () => Promise<T>): Promise<T> {
  answer = (response) => send(response, 200, { id: "s", name: "box" });
  return work();
}

test("a deletion whose answer was lost, and that finds nothing then, was done", async () => {
  answer = (response, count) =>
    count === 1 ? void response.socket?.destroy() : fail(response, 404, "image_not_found");
  await sandgate.images.delete("a");
  answer = (response) => fail(response, 404, "image_not_found");
  await expect(sandgate.images.delete("a")).rejects.toMatchObject({ code: "image_not_found" });
});

test("a rate limit is waited out also for what can't be done twice", async () => {
  const { files } = await sandboxAfter(() => sandgate.sandboxes.get("box"));
  answer = (response, count) => (count < 3 ? fail(response, 429, "rate_limited") : send(response, 200, { path: "/b" }));
  expect(await files.rename("/a", "/b")).toMatchObject({ path: "/b" });
  const impatient = new Sandgate({ url: url(), token: "t", workspace, maxRetries: 0 });
  answer = (response) => fail(response, 429, "rate_limited");
  await expect(impatient.images.get("a")).rejects.toBeInstanceOf(RateLimited);
});

test("a connection that fails says why", async () => {
  const nowhere = new Sandgate({ url: "http://127.0.0.1:1", token: "t", workspace, maxRetries: 0 });
  await expect(nowhere.images.get("a")).rejects.toThrow(/broke the connection off: .+\.$/);
});

test("no bytes of a file are none, and not the whole", async () => {
  const { files } = await sandboxAfter(() => sandgate.sandboxes.get("box"));
  requests.length = 0;
  answer = (response) => send(response, 200, { path: "/a" });
  expect(await files.read("/a", { offset: 5, length: 0 })).toBe("");
  expect(await files.read("/a", { length: 0, format: "bytes" })).toEqual(new Uint8Array());
  expect(await new Response(await files.read("/a", { length: 0, format: "stream" })).text()).toBe("");
  expect(requests.map(({ url }) => url)).toEqual(Array(3).fill("/sandboxes/s/files/entry?path=%2Fa&follow=true"));
  answer = (response) => fail(response, 404, "not_found");
  await expect(files.read("/a", { length: 0 })).rejects.toMatchObject({ code: "not_found" });
});

test("a call ends in its time, or when its signal aborts", async () => {
  answer = () => {};
  await expect(sandgate.images.get("a", { timeoutMs: 2_000 })).rejects.toBeInstanceOf(TimedOut);
  const controller = new AbortController();
  const call = sandgate.images.get("a", { signal: controller.signal });
  controller.abort(new Error("enough"));
  await expect(call).rejects.toThrow("enough");
});

test("a session goes on by one refresh, after which the refused request is sent again", async () => {
  const refreshed: (string | undefined)[] = [];
  const token = createSession({
    tokens: { accessToken: "old", refreshToken: "r1", expiresIn: 300, refreshExpiresIn: 1800 },
    async refresh(refreshToken) {
      refreshed.push(refreshToken);
      return { accessToken: "new", refreshToken: "r2", expiresIn: 300, refreshExpiresIn: 1800 };
    },
  });
  const client = new Sandgate({ url: url(), token, workspace });
  answer = (response, count) =>
    requests[count - 1]?.headers.authorization === "Bearer new"
      ? send(response, 200, { id: "w" })
      : fail(response, 401, "invalid_token");
  await Promise.all([client.workspaces.get("a"), client.workspaces.get("b"), client.workspaces.get("c")]);
  expect(refreshed).toEqual(["r1"]);
});

test("a list goes through its pages, and keys of labels stay as they are", async () => {
  const pages = [
    { sandboxes: [{ id: "1", name: "a", labels: { my_key: "x" } }], next_cursor: "n" },
    { sandboxes: [{ id: "2", name: "b", labels: {} }], next_cursor: null },
  ];
  answer = (response, count) => send(response, 200, pages[count - 1]);
  const found = await sandgate.sandboxes.list({ labels: { a_b: "c" }, limit: 1 });
  expect(found.map(({ record }) => record.labels)).toEqual([{ my_key: "x" }, {}]);
  expect(requests.map(({ url }) => url)).toEqual([
    "/sandboxes?limit=1&label=a_b%3Ac",
    "/sandboxes?limit=1&cursor=n&label=a_b%3Ac",
  ]);
  expect(requests[0]?.headers).toMatchObject({ authorization: "Bearer t", "x-workspace-id": workspace });
});

test.each([
  { limit: undefined, expected: "0123456789" },
  { limit: 7, expected: "3456789" },
  { limit: 3, expected: "789" },
])("logs have all rows also when one answer doesn't hold them, with the limit $limit", async ({ limit, expected }) => {
  const lines = Array.from({ length: 10 }, (_, i) => ({
    timestamp: `2026-01-01T00:00:0${Math.floor(i / 2)}.000000Z`,
    stream: "stdout",
    log: `${i}${"x".repeat(2 * 1024 * 1024)}`,
  }));
  const sandbox = await sandboxAfter(() => sandgate.sandboxes.get("box"));
  answer = (response, count) => {
    const query = new URL(requests[count - 1]?.url ?? "", url()).searchParams;
    const until = query.get("until") ?? "9";
    const logs = lines.filter(({ timestamp }) => timestamp < until);
    send(response, 200, { logs: logs.slice(-Math.min(Number(query.get("limit")), 4)), metrics: [] });
  };
  const logs = await sandbox.logs({ limit });
  expect(logs.map(({ log }) => log[0]).join("")).toBe(expected);
});

test("a watch that broke off says that changes may be lost, and goes on", async () => {
  answer = (response, count) => {
    if (count === 1) return void send(response, 200, { id: "s" });
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write('event: ready\ndata: {"type":"ready","path":null,"to":null}\n\n');
    if (count === 2) response.end();
    else response.write('event: create\ndata: {"type":"create","path":"/a","to":null}\n\n');
  };
  const sandbox = await sandgate.sandboxes.get("s");
  const seen: string[] = [];
  const watch = await sandbox.files.watch("/", ({ type }) => seen.push(type));
  await vi.waitFor(() => expect(seen).toEqual(["overflow", "create"]));
  watch.stop();
  await watch.closed;
});

test("followed logs go on after an id that came without an event", async () => {
  const row = { timestamp: "2026-01-01T00:00:01.000000Z", stream: "stdout", log: "line" };
  let opened = 0;
  answer = (response, count) => {
    const path = requests[count - 1]?.url ?? "";
    if (path.includes("/stream")) {
      opened += 1;
      response.writeHead(200, { "content-type": "text/event-stream" });
      if (opened === 1) response.end("id: e0\n\n");
      else response.write(`id: e1\nevent: log\ndata: ${JSON.stringify(row)}\n\n`);
    } else if (path.includes("/monitoring/")) {
      send(response, 200, { logs: [], metrics: [] });
    } else {
      send(response, 200, { id: "s", state: "ready", created_at: "2026-01-01" });
    }
  };
  const sandbox = await sandgate.sandboxes.get("s");
  for await (const { log } of sandbox.logs({ follow: true })) {
    expect(log).toBe("line");
    break;
  }
  const asked = requests.filter(({ url }) => url.includes("/monitoring/"));
  const streams = asked.filter(({ url }) => url.includes("/stream"));
  expect(streams.map(({ headers }) => headers["last-event-id"])).toEqual([undefined, "e0"]);
  // What was there before is read once.
  expect(asked).toHaveLength(3);
});

test("a limit of followed logs leaves out none that came after the start", async () => {
  const lines = Array.from({ length: 60 }, (_, i) => `line ${i + 10}`);
  let opened = 0;
  answer = (response, count) => {
    const { pathname, searchParams } = new URL(requests[count - 1]?.url ?? "", url());
    if (pathname.endsWith("/stream")) {
      opened += 1;
      response.writeHead(200, { "content-type": "text/event-stream" });
      // It breaks off without anything new.
      response.end();
    } else if (pathname.includes("/monitoring/")) {
      const rows = lines
        .slice(0, 20 * opened)
        .map((log) => ({ timestamp: `2026-01-01T00:00:${log.slice(-2)}.000000Z`, stream: "stdout", log }))
        .filter(({ timestamp }) => timestamp >= (searchParams.get("since") ?? ""));
      send(response, 200, { logs: rows.slice(-Number(searchParams.get("limit"))), metrics: [] });
    } else {
      send(response, 200, { id: "s", state: opened < 3 ? "ready" : "stopped", created_at: "2026-01-01" });
    }
  };
  const seen: string[] = [];
  const sandbox = await sandgate.sandboxes.get("s");
  for await (const { log } of sandbox.logs({ follow: true, limit: 5 })) seen.push(log);
  expect(seen).toEqual(lines.slice(15));
});

test.each([
  ["that lasted a while each time is opened again", 61_000],
  ["that ends at once again and again is given up", 0],
])("a stream without anything new %s", async (_, lastingMs) => {
  const exit = { type: "exit", offset: 0, process: { id: "p", exit_code: 0 } };
  answer = (response, count) => {
    if (count <= 2) return void send(response, 200, { id: "p" });
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end(count < 10 ? ": nothing new\n\n" : `id: 0\nevent: exit\ndata: ${JSON.stringify(exit)}\n\n`);
  };
  const { commands } = await sandgate.sandboxes.get("s");
  const process = await commands.connect("p");
  let nowMs = 0;
  vi.spyOn(performance, "now").mockImplementation(() => (nowMs += lastingMs));
  const event = process.events().next();
  if (lastingMs === 0) await expect(event).rejects.toBeInstanceOf(ConnectionFailed);
  else expect(await event).toMatchObject({ value: { type: "exit" } });
});

test("where there is no WebSocket, what needs one says so before it begins anything", async () => {
  answer = (response) => send(response, 200, { id: "s" });
  const sandbox = await sandgate.sandboxes.get("s");
  vi.stubGlobal("WebSocket", undefined);
  for (const begin of [() => sandbox.pty.create(), () => sandbox.pty.connect("p"), () => sandbox.ports.connect(80)]) {
    await expect(begin()).rejects.toBeInstanceOf(BadSettings);
  }
  expect(requests).toHaveLength(1);
});

test("what a port sends while nobody reads is kept up to a limit, which ends the connection", async () => {
  const { ports } = await sandboxAfter(() => sandgate.sandboxes.get("box"));
  const mebibyte = new ArrayBuffer(1024 * 1024);
  let socket = new EventTarget();
  const close = vi.fn(() => void socket.dispatchEvent(Object.assign(new Event("close"), { code: 1005 })));
  vi.stubGlobal(
    "WebSocket",
    class extends EventTarget {
      close = close;
      constructor() {
        super();
        socket = this;
        queueMicrotask(() => this.dispatchEvent(new Event("open")));
      }
    },
  );
  const receive = (count: number) => {
    for (let i = 0; i < count; i++) socket.dispatchEvent(new MessageEvent("message", { data: mebibyte }));
  };
  const reader = (await ports.connect(80)).readable.getReader();
  receive(64);
  expect((await reader.read()).value).toHaveLength(mebibyte.byteLength);
  receive(1);
  expect(close).not.toHaveBeenCalled();
  receive(1);
  expect(close).toHaveBeenCalled();
  await expect(reader.read()).rejects.toThrow("More came from the port than was read.");
});

test("settings come from options, else from the environment; what is no address is refused", async () => {
  answer = (response) => send(response, 200, { id: "w" });
  vi.stubEnv("SANDGATE_URL", url());
  vi.stubEnv("SANDGATE_TOKEN", "from-env");
  vi.stubEnv("SANDGATE_WORKSPACE", workspace);
  await new Sandgate().images.get("a");
  await new Sandgate({ token: "given" }).images.get("a");
  expect(requests.map(({ headers }) => headers.authorization)).toEqual(["Bearer from-env", "Bearer given"]);
  await expect(new Sandgate({ url: "nowhere" }).images.get("a")).rejects.toBeInstanceOf(BadSettings);
});

test("a login that can't be read is missed only where no token is given", async () => {
  await using folder = await createTempFolder();
  answer = (response) => send(response, 200, { id: "w" });
  // What is below a file is ENOTDIR, as what root alone may read is EACCES.
  await writeFile(join(folder.path, "file"), "");
  vi.stubEnv("SANDGATE_CONFIG", join(folder.path, "file/login.json"));
  await expect(new Sandgate({ url: url(), workspace }).images.get("a")).rejects.toBeInstanceOf(BadSettings);
  await new Sandgate({ url: url(), token: "given", workspace }).images.get("a");
  vi.stubEnv("SANDGATE_TOKEN", "from-env");
  await new Sandgate({ url: url(), workspace }).images.get("a");
  expect(requests.map(({ headers }) => headers.authorization)).toEqual(["Bearer given", "Bearer from-env"]);
});

test("an abort that waits for the workspace leaves alone who else waits for it", async () => {
  let respond = () => {};
  answer = (response) => {
    respond = () => send(response, 200, { workspaces: [], next_cursor: null, default_workspace_id: workspace });
  };
  const client = new Sandgate({ url: url(), token: "t" });
  const controller = new AbortController();
  const first = client.workspaceId({ signal: controller.signal });
  const second = client.workspaceId();
  await vi.waitFor(() => expect(requests).toHaveLength(1));
  controller.abort(new Error("enough"));
  await expect(first).rejects.toThrow("enough");
  respond();
  expect(await second).toBe(workspace);
});

test("a lookup that fails after its caller has left ends no program", async () => {
  answer = (response) => fail(response, 401, "invalid_token");
  const client = new Sandgate({ url: url(), token: "t" });
  const left = client.workspaceId({ signal: AbortSignal.abort(new Error("left")) });
  await expect(left).rejects.toThrow("left");
  await vi.waitFor(() => expect(requests).toHaveLength(1));
  await expect(client.workspaceId()).rejects.toThrow("invalid_token");
});

describe("what was made before an abort was answered is ended", () => {
  const running = { id: "p", state: "running" };
  const box = () => sandboxAfter(() => sandgate.sandboxes.get("box"));
  /** Doesn't answer the first time, and aborts meanwhile. */
  async function abortIn(work: (signal: AbortSignal) => Promise<unknown>, again: (response: ServerResponse) => void) {
    const controller = new AbortController();
    requests.length = 0;
    answer = (response, count) => {
      if (count === 1) controller.abort(new Error("enough"));
      else if (count === 2) again(response);
      else response.writeHead(204).end();
    };
    await expect(work(controller.signal)).rejects.toThrow("enough");
    const [first, second] = requests;
    expect(second).toMatchObject({ url: first?.url, body: first?.body });
    expect(second?.headers["idempotency-key"]).toBe(first?.headers["idempotency-key"]);
    return requests.slice(1).map(({ method, url }) => [method, url]);
  }

  test("a sandbox", async () => {
    const work = (signal: AbortSignal) => sandgate.sandboxes.create("default", { signal });
    expect(await abortIn(work, (response) => send(response, 202, { id: "s", name: "box" }))).toEqual([
      ["POST", "/sandboxes/provision"],
      ["DELETE", "/sandboxes/s"],
    ]);
  });

  test("a command", async () => {
    const { commands } = await box();
    const work = (signal: AbortSignal) => commands.run("sleep 1000", { signal });
    const start = (response: ServerResponse) =>
      response
        .writeHead(200, { "content-type": "text/event-stream" })
        .write(`id: 0\nevent: start\ndata: ${JSON.stringify(running)}\n\n`);
    expect(await abortIn(work, start)).toEqual([
      ["POST", "/sandboxes/s/exec"],
      ["DELETE", "/sandboxes/s/processes/p"],
    ]);
  });

  test("a command with a long input", async () => {
    const { commands } = await box();
    const work = (signal: AbortSignal) => commands.run("cat", { stdin: new Blob(["in"]), signal });
    expect(await abortIn(work, (response) => send(response, 201, running))).toEqual([
      ["POST", "/sandboxes/s/processes"],
      ["DELETE", "/sandboxes/s/processes/p"],
    ]);
  });

  test("and nothing is made where it was aborted beforehand", async () => {
    const { commands } = await box();
    requests.length = 0;
    const signal = AbortSignal.abort(new Error("enough"));
    await expect(sandgate.sandboxes.create("default", { signal })).rejects.toThrow("enough");
    await expect(commands.run("c", { signal })).rejects.toThrow("enough");
    await expect(commands.run("c", { stdin: new Blob(["in"]), signal })).rejects.toThrow("enough");
    expect(requests).toEqual([]);
  });
});
