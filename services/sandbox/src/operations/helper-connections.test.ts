import { performServerHandshake, type ServerHttp2Stream } from "node:http2";
import { type Duplex, duplexPair } from "node:stream";
import { create, toBinary } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { FileService, ListResponseSchema, ReadResponseSchema } from "@sandgate/proto/helper/v1/file";
import { GetInfoResponseSchema, HelperService } from "@sandgate/proto/helper/v1/helper";
import { expect, test } from "vitest";
import { createHelperConnections } from "./helper-connections.ts";
import { openOperationMetrics } from "./metrics.ts";

const { signal } = new AbortController();
const preface = 24;

/** A helper at the other end of the stream, and how many bytes were taken of what it says. */
function connectTo(helper: (stream: Duplex, ours: Duplex) => void, openMs = 10_000) {
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

/** A message of a stream as Connect has them. */
const largeMessage = (() => {
  const part = { case: "data" as const, value: Buffer.alloc(200_000) };
  const message = toBinary(ReadResponseSchema, create(ReadResponseSchema, { part }));
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
})();

/** A helper that answers GetInfo, and all other calls by `answer`. */
function serve(answer: (stream: ServerHttp2Stream, path: string) => void) {
  return (stream: Duplex) => {
    const session = performServerHandshake(stream);
    session.on("error", () => {});
    session.on("stream", (call, headers) => {
      call.on("error", () => {});
      const path = String(headers[":path"]);
      if (!path.endsWith("/GetInfo")) return answer(call, path);
      call.respond({ ":status": 200, "content-type": "application/proto" });
      call.end(toBinary(GetInfoResponseSchema, create(GetInfoResponseSchema, { version: 1, instanceId: "one" })));
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
    call.end(toBinary(ListResponseSchema, create(ListResponseSchema)));
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
