import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { mebibyte } from "@sandgate/kit/base/sizes";
import type { ConnectRequestSchema } from "@sandgate/proto/helper/v1/port";
import { afterEach, describe, expect, test } from "vitest";
import { type PortChannel, PortChannels } from "./port-channels.ts";

type Request = MessageInitShape<typeof ConnectRequestSchema>;
type Part = NonNullable<Request["part"]>;

const { signal } = new AbortController();
const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

const frame = (kind: number, payload: string | Uint8Array = ""): Buffer => {
  const bytes = Buffer.from(payload);
  const header = Buffer.alloc(4);
  header.writeUInt32BE(bytes.length);
  header.writeUInt8(kind);
  return Buffer.concat([header, bytes]);
};
const connected = frame(1);
const data = (text: string | Uint8Array) => frame(2, text);
const eof = frame(3);
const notListening = frame(4);
const aborted = frame(5);
const toPort80 = frame(0, Buffer.of(0, 80));

/** Channels to a helper at the other ends of these sockets, which says on each what `serve` does. */
async function openChannels(serve: (socket: Socket) => void = () => {}) {
  const ends: Socket[] = [];
  const server = createServer((socket) => {
    ends.push(socket);
    socket.on("error", () => {});
    serve(socket);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  let inUse = 0;
  const channels = new PortChannels({
    async open() {
      const socket = connect(port, "127.0.0.1");
      socket.on("error", () => {});
      await once(socket, "connect");
      return socket;
    },
    begin: () => void inUse++,
    end: () => void inUse--,
  });
  closing.push(() => {
    channels.close();
    server.close();
    for (const end of ends) end.destroy();
  });
  return { channels, ends, inUse: () => inUse };
}

async function take(channels: PortChannels): Promise<PortChannel> {
  const channel = await channels.take(signal);
  if (!channel) throw new Error("there is no channel");
  return channel;
}

async function* requests(...parts: Part[]): AsyncGenerator<Request> {
  for (const part of [{ case: "port" as const, value: 80 }, ...parts]) yield { part };
}

/** What a connection gets, each part by its text or its case. */
async function read(
  channel: PortChannel,
  sent: AsyncIterable<Request> = requests(),
  within: AbortSignal = signal,
): Promise<string[]> {
  const got: string[] = [];
  for await (const { part } of channel.connect(sent, { signal: within })) {
    got.push(part.case === "data" ? Buffer.from(part.value).toString() : (part.case ?? "nothing"));
  }
  return got;
}

/** Says this whenever a connection is asked for. */
const answering = (answer: Uint8Array) => (socket: Socket) => {
  let heard = Buffer.alloc(0);
  socket.on("data", (chunk) => {
    heard = Buffer.concat([heard, chunk]);
    if (heard.includes(toPort80)) socket.write(answer);
    heard = Buffer.alloc(0);
  });
};

test("a channel is used again once its connection has ended, and another is opened meanwhile", async () => {
  const { channels, ends, inUse } = await openChannels(
    answering(Buffer.concat([connected, data("a"), data("b"), eof])),
  );
  const first = await take(channels);
  const second = await take(channels);
  expect(inUse()).toBe(2);
  expect(await read(first)).toEqual(["connected", "a", "b", "eof"]);
  expect(inUse()).toBe(1);
  expect(await take(channels)).toBe(first);
  expect(await read(first)).toEqual(["connected", "a", "b", "eof"]);
  expect(await read(second)).toEqual(["connected", "a", "b", "eof"]);
  expect([ends.length, inUse()]).toEqual([2, 0]);
});

test("what is sent comes in frames, the first with the port", async () => {
  const received: Buffer[] = [];
  const { channels } = await openChannels((socket) => {
    socket.on("data", (chunk) => {
      received.push(chunk);
      if (Buffer.concat(received).subarray(-4).equals(eof)) socket.write(Buffer.concat([connected, eof]));
    });
  });
  const large = Buffer.alloc(150_000, "x");
  const parts = [Buffer.from("first"), Buffer.alloc(0), large].map((value) => ({ case: "data" as const, value }));
  await read(await take(channels), requests(...parts, { case: "eof", value: true }));
  const beginning = Buffer.concat([toPort80, data("first")]);
  expect(received[0]?.subarray(0, beginning.length)).toEqual(beginning);
  const slices = [0, 65_536, 131_072].map((at) => data(large.subarray(at, at + 65_536)));
  expect(Buffer.concat(received).equals(Buffer.concat([beginning, ...slices, eof]))).toBe(true);
});

test("frames come whole in whatever parts they are sent", async () => {
  const answer = Buffer.concat([connected, data("one"), data("two"), eof]);
  const { channels } = await openChannels((socket) => {
    socket.setNoDelay(true);
    socket.once("data", async () => {
      for (const byte of answer) {
        socket.write(Buffer.of(byte));
        await new Promise(setImmediate);
      }
    });
  });
  expect(await read(await take(channels))).toEqual(["connected", "one", "two", "eof"]);
});

test("a refusal and a broken connection fail, and the channel serves the next", async () => {
  const answers = [notListening, Buffer.concat([connected, data("a"), aborted]), Buffer.concat([connected, eof])];
  const { channels, ends } = await openChannels((socket) => {
    socket.on("data", () => socket.write(answers.shift() ?? ""));
  });
  await expect(read(await take(channels))).rejects.toMatchObject({ reason: "UPSTREAM_ERROR", callersFault: true });
  await expect(read(await take(channels))).rejects.toMatchObject({ code: Code.Aborted });
  expect(await read(await take(channels))).toEqual(["connected", "eof"]);
  expect(ends.length).toBe(1);
});

test("what a server took nothing of doesn't come to the next", async () => {
  const { channels } = await openChannels(answering(Buffer.concat([connected, eof])));
  const channel = await take(channels);
  const late = Promise.withResolvers<void>();
  const slow = async function* (): AsyncGenerator<Request> {
    yield* requests();
    await late.promise;
    yield { part: { case: "data", value: Buffer.from("late") } };
    throw new Error("and this");
  };
  expect(await read(channel, slow())).toEqual(["connected", "eof"]);
  const next = read(await take(channels));
  late.resolve();
  expect(await next).toEqual(["connected", "eof"]);
});

test("the rest of what was being sent when a server ended doesn't come to the next", async () => {
  const received: Buffer[] = [];
  let uses = 0;
  const { channels, ends } = await openChannels((socket) => {
    socket.on("data", (chunk) => {
      received.push(chunk);
      if (++uses > 1) return;
      // It takes no more, so that most of what is sent waits at the other end.
      socket.pause();
      setTimeout(() => socket.write(Buffer.concat([connected, eof])), 300);
    });
  });
  const large = { case: "data" as const, value: Buffer.alloc(32 * mebibyte, "x") };
  expect(await read(await take(channels), requests(large))).toEqual(["connected", "eof"]);
  const next = read(await take(channels), requests({ case: "data", value: Buffer.from("next") }));
  ends[0]?.resume();
  const all = () => Buffer.concat(received);
  const second = Buffer.concat([toPort80, data("next")]);
  await expect.poll(() => all().lastIndexOf(second)).toBeGreaterThan(0);
  ends[0]?.write(Buffer.concat([connected, eof]));
  expect(await next).toEqual(["connected", "eof"]);
  expect(all().subarray(all().lastIndexOf(toPort80)).equals(second)).toBe(true);
  expect(all().length).toBeLessThan(large.value.length);
});

describe("a channel ends", () => {
  const whole = Buffer.concat([connected, eof]);
  test.each([
    ["a frame of another kind", frame(9)],
    ["a frame that only callers send", toPort80],
    ["a frame that is too long", Buffer.from([2, 1, 0, 1])],
    ["data after the end", Buffer.concat([whole, data("more")])],
    ["what only HTTP says", Buffer.from("HTTP/1.1 200 OK\r\n\r\n")],
  ])("with %s", async (_what, answer) => {
    const { channels, ends, inUse } = await openChannels(answering(answer));
    await read(await take(channels)).catch((error) => expect(error).toMatchObject({ code: Code.Internal }));
    await expect.poll(() => ends[0]?.closed).toBe(true);
    expect(inUse()).toBe(0);
    await take(channels);
    await expect.poll(() => ends.length).toBe(2);
  });

  test("with what comes of no connection", async () => {
    const { channels, ends } = await openChannels(answering(whole));
    await read(await take(channels));
    ends[0]?.write(data("unasked"));
    await expect.poll(() => ends[0]?.closed).toBe(true);
    await read(await take(channels));
    expect(ends.length).toBe(2);
  });

  test("with the helper, and fails its connection", async () => {
    const { channels } = await openChannels((socket) => {
      socket.once("data", () => socket.end(Buffer.concat([connected, data("a")])));
    });
    await expect(read(await take(channels))).rejects.toMatchObject({ code: Code.Unavailable });
  });

  test("with a caller who leaves, whose requests fail, or who reads no more", async () => {
    const { channels, ends, inUse } = await openChannels(answering(connected));
    const leaving = new AbortController();
    const left = read(await take(channels), requests(), leaving.signal);
    await expect.poll(() => ends.length).toBe(1);
    leaving.abort();
    await expect(left).rejects.toThrow();
    await expect(read(await take(channels), requests(), leaving.signal)).rejects.toBe(leaving.signal.reason);
    const failing = async function* (): AsyncGenerator<Request> {
      yield* requests();
      throw new Error("no more");
    };
    await expect(read(await take(channels), failing())).rejects.toThrow("no more");
    for await (const _ of (await take(channels)).connect(requests(), { signal })) break;
    await expect.poll(() => ends.map(({ closed }) => closed)).toEqual([true, true, true, true]);
    expect(inUse()).toBe(0);
  });
});

test.each([
  ["large", Buffer.alloc(65_536, "x")],
  ["small", Buffer.from("x")],
  ["empty", Buffer.alloc(0)],
])("%s frames that nobody reads are not taken", async (_what, payload) => {
  let taken = 0;
  const flood = Buffer.alloc(mebibyte, data(payload));
  const { channels } = await openChannels((socket) => {
    const say = () => {
      do taken += flood.length;
      while (!socket.destroyed && socket.write(flood));
    };
    socket.once("data", () => {
      socket.write(connected);
      socket.on("drain", say);
      say();
    });
  });
  const parts = (await take(channels)).connect(requests(), { signal });
  await parts.next();
  let last = -1;
  const isStill = () => {
    const before = last;
    last = taken;
    return before === last;
  };
  await expect.poll(isStill, { interval: 200 }).toBe(true);
  // Buffers of the kernel and of this end.
  expect(taken).toBeLessThan(24 * mebibyte);
  await parts.return(undefined);
});

test("a sandbox has sixteen, and none for a while after one could not be opened", async () => {
  const { channels } = await openChannels();
  const all = await Promise.all(Array.from({ length: 20 }, () => channels.take(signal)));
  expect(all.filter((channel) => channel !== undefined)).toHaveLength(16);
  let asked = 0;
  const barred = new PortChannels({
    async open() {
      asked++;
      return undefined;
    },
    begin() {},
    end() {},
  });
  expect([await barred.take(signal), await barred.take(signal), asked]).toEqual([undefined, undefined, 1]);
});

test("closing ends those in use, those that are kept and those that are being opened", async () => {
  const { channels, ends } = await openChannels(answering(Buffer.concat([connected, eof])));
  const [kept, used] = [await take(channels), await take(channels)];
  await read(kept);
  const reading = read(used, (async function* () {})());
  const opening = [channels.take(signal), channels.take(signal)];
  channels.close();
  await expect(reading).rejects.toMatchObject({ code: Code.Unavailable });
  expect(await Promise.all(opening)).toEqual([kept, undefined]);
  await expect.poll(() => ends.every(({ closed }) => closed)).toBe(true);
});
