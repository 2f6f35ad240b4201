import { create, toBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { ReadResponseSchema } from "@sandgate/proto/helper/v1/file";
import { expect, test } from "vitest";
import type { MessageLimits } from "./message-limits.ts";
import { readMessages } from "./received-messages.ts";

const maxBytes = 1_000;
const dataOf = (length: number) =>
  create(ReadResponseSchema, { part: { case: "data", value: new Uint8Array(length).fill(length) } });

function envelop(flags: number, bytes: Uint8Array): Buffer {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt8(flags);
  prefix.writeUInt32BE(bytes.length, 1);
  return Buffer.concat([prefix, bytes]);
}
const message = (length: number) => envelop(0, toBinary(ReadResponseSchema, dataOf(length)));
const end = (json: string) => envelop(2, Buffer.from(json));

async function read(body: Buffer, o: { partBytes?: number; limits?: MessageLimits; headers?: Headers } = {}) {
  const { partBytes = body.length, limits, headers = new Headers() } = o;
  async function* parts() {
    for (let at = 0; at < body.length; at += partBytes) yield body.subarray(at, at + partBytes);
  }
  const trailers = new Headers();
  const messages = [];
  for await (const each of readMessages(ReadResponseSchema, parts(), { maxBytes, limits, headers, trailers })) {
    messages.push(each);
  }
  return { messages, trailers: [...trailers] };
}

test.each([1, 2, 4, 5, 7, 100, undefined])("messages come whole from parts of %s bytes", async (partBytes) => {
  const lengths = [3, 0, 250, 1, 90];
  const body = Buffer.concat([...lengths.map(message), end('{"metadata":{"a":["b"]}}')]);
  const { messages, trailers } = await read(body, partBytes === undefined ? {} : { partBytes });
  expect(messages).toEqual(lengths.map(dataOf));
  expect(trailers).toEqual([["a", "b"]]);
});

test("a stream may be empty, and its end, too", async () => {
  expect(await read(end("{}"))).toEqual({ messages: [], trailers: [] });
});

test("the error at the end is thrown, with the headers of the answer", async () => {
  const failed = end('{"error":{"code":"not_found","message":"gone"}}');
  const reading = read(Buffer.concat([message(3), failed]), { headers: new Headers({ "x-one": "1" }) });
  await expect(reading).rejects.toMatchObject({ code: Code.NotFound, rawMessage: "gone" });
  await expect(reading).rejects.toSatisfy(({ metadata }) => metadata.get("x-one") === "1");
});

test.each<[string, Buffer, Code]>([
  ["nothing at all", Buffer.alloc(0), Code.Internal],
  ["no end", message(3), Code.Internal],
  ["half of a message", message(3).subarray(0, 7), Code.Internal],
  ["a message after the end", Buffer.concat([end("{}"), message(3)]), Code.Internal],
  ["another end", Buffer.concat([end("{}"), end("{}")]), Code.Internal],
  ["an end that is no JSON", end("{nothing"), Code.Unknown],
  ["an end that is no object", end("[]"), Code.Unknown],
  ["a compressed message", envelop(1, Buffer.alloc(3)), Code.Internal],
  ["a message above the limit, of which little has come", message(maxBytes).subarray(0, 9), Code.ResourceExhausted],
])("a stream with %s fails", async (_what, body, code) => {
  await expect(read(body)).rejects.toMatchObject({ code });
});

test("the limits of a method are those of each message", async () => {
  const limits: MessageLimits = { maxBytes: 50, maxItems: 10, maxFields: 10 };
  const body = Buffer.concat([message(40), message(41), end("{}")]);
  expect((await read(body, { limits })).messages).toHaveLength(2);
  await expect(read(Buffer.concat([message(51), end("{}")]), { limits })).rejects.toMatchObject({
    code: Code.ResourceExhausted,
  });
});
