import { once } from "node:events";
import { performServerHandshake, type ServerHttp2Stream } from "node:http2";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { type Duplex, duplexPair } from "node:stream";
import { create, type DescMessage, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { timestampNow } from "@bufbuild/protobuf/wkt";
import { Code, createClient, type Transport } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { mebibyte } from "@sandgate/kit/base/sizes";
import {
  ChangeType,
  EntryType,
  FileService,
  ListResponseSchema,
  ReadResponseSchema,
  TakeWatcherChangesResponseSchema,
} from "@sandgate/proto/helper/v1/file";
import { ErrorDetailSchema, GetInfoResponseSchema, HelperService, Reason } from "@sandgate/proto/helper/v1/helper";
import { ListListeningResponseSchema, PortService } from "@sandgate/proto/helper/v1/port";
import {
  ListProcessesResponseSchema,
  OutputStream,
  ProcessService,
  ProcessState,
  RunResponseSchema,
} from "@sandgate/proto/helper/v1/process";
import { expect, test } from "vitest";
import type { RuntimeOperations } from "../runtime/operations.ts";
import { createHelperConnections } from "./helper-connections.ts";
import { fromHelperError } from "./helper-errors.ts";
import { openOperationMetrics } from "./metrics.ts";

const { signal } = new AbortController();
const preface = 24;

/** A helper at the other end of the stream, and how many bytes were taken of what it says. */
function connectTo(
  helper: (stream: Duplex, ours: Duplex) => void,
  openMs = 10_000,
  connectDaemon?: RuntimeOperations["connectDaemon"],
) {
  let dials = 0;
  let open = 0;
  const metrics = openOperationMetrics(createMetrics());
  const connections = createHelperConnections({
    metrics,
    openMs,
    operations: {
      async connectHelper() {
        dials++;
        open++;
        const [ours, theirs] = duplexPair();
        // As the streams of runtimes, it keeps nothing of what was written.
        const write = ours.write.bind(ours) as (chunk: Uint8Array, ...rest: unknown[]) => boolean;
        ours.write = (chunk: Uint8Array, ...rest: unknown[]) => write(Buffer.from(chunk), ...rest);
        ours.once("close", () => {
          open--;
          theirs.destroy();
        });
        theirs.on("error", () => {});
        helper(theirs, ours);
        return ours;
      },
      ...(connectDaemon && { connectDaemon }),
    },
  });
  return { connections, counts: () => ({ dials, open }) };
}

/** Says the same again and again, as fast as it is taken; returns how much that was. */
function repeat(stream: Duplex, text: Uint8Array): () => number {
  let taken = 0;
  const say = () => {
    while (!stream.destroyed) {
      taken += text.length;
      if (!stream.write(text)) return void stream.once("drain", say);
    }
  };
  stream.resume();
  say();
  return () => taken;
}

/** An HTTP/2 frame (RFC 9113, section 4.1). */
function frame(type: number, flags: number, streamId: number, payload: Uint8Array): Buffer {
  const header = Buffer.alloc(9);
  header.writeUIntBE(payload.length, 0, 3);
  header.writeUInt8(type, 3);
  header.writeUInt8(flags, 4);
  header.writeUInt32BE(streamId, 5);
  return Buffer.concat([header, payload]);
}

const settings = frame(4, 0, 0, Buffer.alloc(0));

const encode = <D extends DescMessage>(desc: D, init: MessageInitShape<D>) => toBinary(desc, create(desc, init));

/** A message of a stream as Connect has them. */
function envelop(message: Uint8Array): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

const largeMessage = envelop(encode(ReadResponseSchema, { part: { case: "data", value: Buffer.alloc(200_000) } }));

/** A field of an encoded message, of bytes or a message. */
function field(number: number, value: Uint8Array): Buffer {
  const start = new BinaryWriter().tag(number, WireType.LengthDelimited).uint32(value.length).finish();
  return Buffer.concat([start, value]);
}

const repeated = (bytes: Uint8Array, times: number) => Buffer.alloc(bytes.length * times, bytes);

/** A helper that answers GetInfo, and all other calls by `answer`. */
function serve(answer: (stream: ServerHttp2Stream, path: string) => void, instanceId = "one", version = 1) {
  return (stream: Duplex) => {
    const session = performServerHandshake(stream, { settings: { maxConcurrentStreams: 1_000 } });
    session.on("error", () => {});
    session.on("stream", (call, headers) => {
      call.on("error", () => {});
      const path = String(headers[":path"]);
      if (!path.endsWith("/GetInfo")) return answer(call, path);
      call.respond({ ":status": 200, "content-type": "application/proto" });
      call.end(encode(GetInfoResponseSchema, { version, instanceId }));
    });
  };
}

test.each([
  ["noise", Buffer.alloc(65_536, "noise ")],
  ["settings without end", settings],
  ["pings without end", frame(6, 0, 0, Buffer.alloc(8))],
  ["data of no call", frame(0, 0, 7, Buffer.alloc(16_384))],
])("a helper that says %s costs its call and little memory", async (_what, text) => {
  let taken = () => 0;
  const { connections, counts } = connectTo((stream) => {
    stream.write(settings);
    taken = repeat(stream, text);
  });
  await expect(connections.open("a", signal)).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
  expect(taken()).toBeLessThan(16 * mebibyte);
  await expect.poll(() => counts().open).toBe(0);
});

test("headers without end cost their call and little memory", async () => {
  let taken = () => 0;
  const { connections, counts } = connectTo((stream) => {
    let heard = 0;
    stream.on("data", (data: Buffer) => {
      heard += data.length;
      if (heard <= preface) return;
      stream.removeAllListeners("data");
      stream.write(Buffer.concat([settings, frame(1, 0, 1, Buffer.from([0x88]))]));
      // A literal header of 16 KB in each frame, none of them the last (RFC 7541, section 6.2.2).
      const literal = Buffer.concat([Buffer.from([0x00, 0x01, 0x61, 0x7f, 0x81, 0x7f]), Buffer.alloc(16_000, "x")]);
      taken = repeat(stream, frame(9, 0, 1, literal));
    });
  });
  await expect(connections.open("a", signal)).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
  expect(taken()).toBeLessThan(16 * mebibyte);
  await expect.poll(() => counts().open).toBe(0);
});

test("a helper that says nothing is given up, and so is one that hangs up", async () => {
  const silent = connectTo((stream) => stream.resume(), 100);
  await expect(silent.connections.open("a", signal)).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
  const gone = connectTo((stream) => stream.destroy());
  await expect(gone.connections.open("a", signal)).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
  await expect.poll(() => [silent.counts().open, gone.counts().open]).toEqual([0, 0]);
});

test("a stream that breaks before anything is sent over it costs its call", async () => {
  const failure = new DomainError("RUNTIME_UNAVAILABLE", "It ended.");
  const { connections, counts } = connectTo((_, ours) => setImmediate(() => ours.destroy(failure)));
  await expect(connections.open("a", signal)).rejects.toBe(failure);
  expect(counts()).toEqual({ dials: 1, open: 0 });
});

test("a message above the limit is not read to its end, and the connection serves other calls", async () => {
  const written: number[] = [];
  const { connections, counts } = connectTo(
    serve((call) => {
      call.respond({ ":status": 200, "content-type": "application/proto" });
      const part = Buffer.alloc(mebibyte);
      const say = (index: number) => {
        if (index === 64 || call.destroyed) return void call.end();
        written.push(index);
        call.write(part, () => say(index + 1));
      };
      say(0);
    }),
  );
  const { transport } = await connections.open("a", signal);
  await expect(createClient(FileService, transport).list({})).rejects.toThrow(/exceeds|larger|max/i);
  expect(written.length).toBeLessThan(16);
  expect((await connections.open("a", signal)).info.instanceId).toBe("one");
  expect(counts()).toEqual({ dials: 1, open: 1 });
  connections.close();
  await expect.poll(counts).toEqual({ dials: 1, open: 0 });
});

test("calls of a sandbox share a connection, and a broken one is opened again", async () => {
  const streams: Duplex[] = [];
  const answer = serve((call) => {
    call.respond({ ":status": 200, "content-type": "application/proto" });
    call.end(encode(ListResponseSchema, {}));
  });
  const { connections, counts } = connectTo((stream) => {
    streams.push(stream);
    answer(stream);
  });
  const [first, second] = await Promise.all([connections.open("a", signal), connections.open("a", signal)]);
  expect(second).toBe(first);
  await connections.open("b", signal);
  expect(counts()).toEqual({ dials: 2, open: 2 });
  streams[0]?.destroy();
  await expect.poll(counts).toEqual({ dials: 2, open: 1 });
  const again = await connections.open("a", signal);
  expect((await createClient(FileService, again.transport).list({})).entries).toEqual([]);
  expect(counts()).toEqual({ dials: 3, open: 2 });
  connections.close();
});

test.each(["one after another", "at once"])(
  "more open calls than a connection takes, begun %s, hold no other",
  async (how) => {
    let held = 0;
    const { connections, counts } = connectTo(
      serve((call, path) => {
        if (path.endsWith("/Wait")) return void held++;
        call.respond({ ":status": 200, "content-type": "application/proto" });
        call.end(encode(ListResponseSchema, {}));
      }),
    );
    const leaving = new AbortController();
    const hold = async () => {
      const { transport } = await connections.open("a", signal);
      createClient(ProcessService, transport)
        .wait({}, { signal: leaving.signal })
        .catch(() => {});
    };
    if (how === "at once") await Promise.all(Array.from({ length: 1_200 }, hold));
    else for (let i = 0; i < 1_200; i++) await hold();
    const { transport } = await connections.open("a", signal);
    await createClient(FileService, transport).list({}, { timeoutMs: 30_000 });
    await expect.poll(() => held, { timeout: 30_000 }).toBe(1_200);
    expect(counts().open).toBeLessThan(8);
    leaving.abort();
    connections.close();
    await expect.poll(() => counts().open).toBe(0);
  },
);

const id = Buffer.alloc(16, "id");

test("a data connection begins with its mark and id, and ends with its signal; a sandbox has four at most", async () => {
  const ends: Socket[] = [];
  const server = createServer((socket) => ends.push(socket)).listen(0);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const connectDaemon = async () => connect(port);
  const { connections } = connectTo(
    serve(() => {}, "one", 7),
    10_000,
    connectDaemon,
  );
  const { openData } = await connections.open("a", signal);
  const leaving = new AbortController();
  if (!openData) throw new Error("it takes data connections");
  const sockets = await Promise.all([1, 2, 3, 4].map(() => openData(id, leaving.signal)));
  expect(await openData(id, signal)).toBeUndefined();
  await expect.poll(() => ends.map((end) => end.read())).toContainEqual(Buffer.concat([Buffer.of(0), id]));
  sockets[0]?.destroy();
  await expect.poll(() => openData(id, leaving.signal)).toBeDefined();
  leaving.abort();
  await expect.poll(() => ends.every((end) => end.resume().closed)).toBe(true);
  await expect(openData(id, leaving.signal)).rejects.toThrow();
  connections.close();
  server.close();
});

test("a channel begins with its mark, and ends with the connection for calls", async () => {
  const ends: Socket[] = [];
  const server = createServer((socket) => ends.push(socket)).listen(0);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const streams: Duplex[] = [];
  const answer = serve(() => {}, "one", 8);
  const { connections } = connectTo(
    (stream) => {
      streams.push(stream);
      answer(stream);
    },
    10_000,
    async () => connect(port),
  );
  const { takeChannel } = await connections.open("a", signal);
  expect(await takeChannel?.(signal)).toBeDefined();
  await expect.poll(() => ends[0]?.read()).toEqual(Buffer.of(1));
  streams[0]?.destroy();
  await expect.poll(() => ends[0]?.resume().closed).toBe(true);
  expect(await takeChannel?.(signal)).toBeUndefined();
  connections.close();
  server.close();
});

test.each([
  ["an earlier helper", 6, async () => connect(1), false],
  ["one that only the engine reaches", 8, undefined, false],
  ["one that can't be reached", 8, () => Promise.reject(new DomainError("RUNTIME_UNAVAILABLE", "It is away.")), true],
])("%s gets no other connection, and calls go on", async (_what, version, connectDaemon, mayHaveOne) => {
  const { connections } = connectTo(
    serve(() => {}, "one", version),
    10_000,
    connectDaemon,
  );
  for (let i = 0; i < 6; i++) {
    const { openData, takeChannel } = await connections.open("a", signal);
    expect([openData !== undefined, takeChannel !== undefined]).toEqual([mayHaveOne, mayHaveOne]);
    expect([await openData?.(id, signal), await takeChannel?.(signal)]).toEqual([undefined, undefined]);
  }
  connections.close();
});

test("calls whose answers nobody reads hold no other call", async () => {
  let taken = 0;
  const { connections } = connectTo(
    serve((call) => {
      call.respond({ ":status": 200, "content-type": "application/connect+proto" });
      const count = repeat(call, largeMessage);
      call.once("close", () => {
        taken += count();
      });
    }),
  );
  const { transport } = await connections.open("a", signal);
  const leaving = new AbortController();
  const files = createClient(FileService, transport);
  const calls = Array.from({ length: 20 }, () => files.read({}, { signal: leaving.signal })[Symbol.asyncIterator]());
  await Promise.all(calls.map((call) => call.next()));
  for (let i = 0; i < 10; i++) {
    expect((await createClient(HelperService, transport).getInfo({})).instanceId).toBe("one");
  }
  leaving.abort();
  // What each call may have unread is what bounds it.
  await expect.poll(() => taken).toBeGreaterThan(0);
  expect(taken).toBeLessThan(20 * 4 * mebibyte);
  connections.close();
});

/** A helper whose calls all have the same answer, with the status and the end that Connect has. */
function answering(type: "application/proto" | "application/connect+proto", bytes: Uint8Array) {
  return connectTo(
    serve((call) => {
      call.respond({ ":status": 200, "content-type": type });
      call.end(bytes);
    }),
  ).connections;
}

const endOfStream = Buffer.from([2, 0, 0, 0, 2, 0x7b, 0x7d]);

test("a helper that streams many small messages lets the event loop turn", async () => {
  const count = 60_000;
  const event = envelop(encode(RunResponseSchema, { event: { event: { case: "output", value: {} } } }));
  const connections = answering("application/connect+proto", Buffer.concat([repeated(event, count), endOfStream]));
  const { transport } = await connections.open("a", signal);
  let messages = 0;
  let ofTurn = 0;
  let most = 0;
  let turn = setImmediate(function next() {
    most = Math.max(most, ofTurn);
    ofTurn = 0;
    turn = setImmediate(next);
  });
  for await (const _ of createClient(ProcessService, transport).run({})) {
    messages++;
    ofTurn++;
  }
  clearImmediate(turn);
  connections.close();
  expect(messages).toBe(count);
  // Of what is taken in 5 ms.
  expect(most).toBeLessThan(count / 6);
});

const empty = Buffer.alloc(0);
const tooMany: [string, (transport: Transport) => Promise<unknown>, Buffer][] = [
  ["files", (to) => createClient(FileService, to).list({}), repeated(field(1, empty), 2_000)],
  ["changes", (to) => createClient(FileService, to).takeWatcherChanges({}), repeated(field(1, empty), 5_000)],
  ["listeners", (to) => createClient(PortService, to).listListening({}), repeated(field(1, empty), 10_000)],
  ["processes", (to) => createClient(ProcessService, to).listProcesses({}), repeated(field(1, empty), 2_000)],
  ["times of a file", (to) => createClient(FileService, to).stat({}), field(1, repeated(field(9, empty), 1_000))],
  ["times in a list", (to) => createClient(FileService, to).list({}), field(1, repeated(field(9, empty), 10_000))],
  ["fields of no contract", (to) => createClient(FileService, to).list({}), repeated(field(99, empty), 10_000)],
  ["words", (to) => createClient(ProcessService, to).start({}), field(1, repeated(field(3, empty), 10_000))],
  ["bytes", (to) => createClient(FileService, to).stat({}), field(1, field(1, Buffer.alloc(mebibyte)))],
];

test.each(tooMany)("an answer of too many %s is refused before it is decoded", async (_what, call, bytes) => {
  const connections = answering("application/proto", bytes);
  const { transport } = await connections.open("a", signal);
  await expect(call(transport)).rejects.toMatchObject({ code: Code.ResourceExhausted });
  connections.close();
});

test("so is one whose fields have other types than the decoder takes them for", async () => {
  // As a number it is followed by a long name; as a message it has a part of that name, and the rest are messages.
  const hidden = Buffer.concat([Buffer.from([0x08, 5]), field(2, repeated(field(1, empty), 100_000))]);
  const connections = answering("application/proto", hidden);
  const { transport } = await connections.open("a", signal);
  await expect(createClient(FileService, transport).list({})).rejects.toMatchObject({ code: Code.Internal });
  connections.close();
});

test("so is a message of a stream, in whatever parts it comes", async () => {
  const lie = envelop(field(1, repeated(field(1, empty), 10_000)));
  const { connections } = connectTo(
    serve((call) => {
      call.respond({ ":status": 200, "content-type": "application/connect+proto" });
      const parts = Array.from({ length: Math.ceil(lie.length / 999) }, (_, i) => lie.subarray(i * 999, (i + 1) * 999));
      call.write(largeMessage.subarray(0, 3));
      call.write(largeMessage.subarray(3));
      for (const part of parts) call.write(part);
    }),
  );
  const { transport } = await connections.open("a", signal);
  const received: number[] = [];
  const read = async () => {
    for await (const { part } of createClient(FileService, transport).read({})) {
      received.push(part.case === "data" ? part.value.length : -1);
    }
  };
  await expect(read()).rejects.toMatchObject({ code: Code.ResourceExhausted });
  expect(received).toEqual([200_000]);
  connections.close();
});

test("the largest answers that an honest helper has are taken", async () => {
  const now = timestampNow();
  const path = Buffer.from("/a/folder/with/a/file.txt");
  const entry = { path, type: EntryType.FILE, size: 5n, mode: 0o644, uid: 1, gid: 1, modifiedAt: now, etag: "a-b" };
  const named = { ...entry, user: "root", group: "root", symlinkTarget: path };
  const change = { type: ChangeType.MOVE, path, to: path };
  const process = {
    id: "01900000-0000-7000-8000-0000000000bb",
    pid: 7,
    argv: Array.from({ length: 300 }, () => "word"),
    cwd: "/work",
    user: "root",
    tag: "tag",
    terminal: { cols: 80, rows: 24, hangupAfterMs: 5n },
    state: ProcessState.EXITED,
    exitCode: 1,
    outputBytes: 9n,
    retainedFrom: 1n,
    startedAt: now,
    endedAt: now,
  };
  const longest = { ...process, argv: Array.from({ length: 4_096 }, () => "x".repeat(31)) };
  const output = { stream: OutputStream.STDOUT, data: Buffer.alloc(65_536) };
  const of =
    (count: number) =>
    <T>(item: T) =>
      Array.from({ length: count }, () => item);
  const take = async <T>(bytes: Uint8Array, call: (transport: Transport) => Promise<T>): Promise<T> => {
    const connections = answering("application/proto", bytes);
    const { transport } = await connections.open("a", signal);
    return call(transport).finally(() => connections.close());
  };
  const list = encode(ListResponseSchema, { entries: of(1_000)(named), nextCursor: path });
  expect((await take(list, (to) => createClient(FileService, to).list({}))).entries).toHaveLength(1_000);
  const changes = encode(TakeWatcherChangesResponseSchema, { changes: of(4_097)(change) });
  const taken = await take(changes, (to) => createClient(FileService, to).takeWatcherChanges({}));
  expect(taken.changes).toHaveLength(4_097);
  const listeners = encode(ListListeningResponseSchema, {
    listeners: of(5_000)({ port: 80, address: "127.0.0.1", processId: process.id }),
  });
  const listening = await take(listeners, (to) => createClient(PortService, to).listListening({}));
  expect(listening.listeners).toHaveLength(5_000);
  const processes = encode(ListProcessesResponseSchema, { processes: of(1_064)(process) });
  const listed = await take(processes, (to) => createClient(ProcessService, to).listProcesses({}));
  expect(listed.processes).toHaveLength(1_064);

  const events = [
    { offset: 0n, event: { case: "start" as const, value: longest } },
    { offset: 65_536n, event: { case: "output" as const, value: output } },
    { offset: 65_536n, event: { case: "exit" as const, value: longest } },
  ];
  const sent = events.map((event) => envelop(encode(RunResponseSchema, { event })));
  const connections = answering("application/connect+proto", Buffer.concat([...sent, endOfStream]));
  const { transport } = await connections.open("a", signal);
  const cases: unknown[] = [];
  for await (const { event } of createClient(ProcessService, transport).run({})) cases.push(event?.event.case);
  expect(cases).toEqual(["start", "output", "exit"]);
  connections.close();
});

test("what an honest helper says of an error is taken, and no more than it may say", async () => {
  const detail = encode(ErrorDetailSchema, { reason: Reason.ERRNO, errno: "ENOSPC" });
  const details = [{ type: ErrorDetailSchema.typeName, value: Buffer.from(detail).toString("base64") }];
  const say = async (message: string) => {
    const error = { code: "resource_exhausted", message, details };
    const end = envelop(Buffer.from(JSON.stringify({ error })));
    end[0] = 2;
    const { connections } = connectTo(
      serve((call, path) => {
        const isStream = path.endsWith("/Read");
        const type = isStream ? "application/connect+proto" : "application/json";
        call.respond({ ":status": isStream ? 200 : 429, "content-type": type });
        call.end(isStream ? end : JSON.stringify(error));
      }),
    );
    const { transport } = await connections.open("a", signal);
    const files = createClient(FileService, transport);
    const failures = await Promise.all([
      files.stat({}).catch(fromHelperError),
      files.read({})[Symbol.asyncIterator]().next().catch(fromHelperError),
    ]);
    connections.close();
    return failures;
  };
  const taken = { reason: "CONFLICT", errno: "ENOSPC" };
  expect(await say("no space ".repeat(200))).toMatchObject([taken, taken]);
  const refused = { reason: "UPSTREAM_ERROR" };
  expect(await say("no space ".repeat(200_000))).toMatchObject([refused, refused]);
});

test.each(["", "x".repeat(65), "a b"])("a helper whose run has the id %j costs its call", async (instanceId) => {
  const { connections, counts } = connectTo(serve(() => {}, instanceId));
  await expect(connections.open("a", signal)).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
  await expect.poll(() => counts().open).toBe(0);
});
