import { encodeEnvelope } from "@connectrpc/connect/protocol";
import { expect, test } from "vitest";
import { boundMessage, boundMessages } from "./message-bounds.ts";

const many = Buffer.from(`[${"{},".repeat(100_000)}{}]`);
const few = Buffer.from(JSON.stringify({ data: `${'",[{\\'.repeat(50_000)}` }));

async function* inPartsOf(bytes: Uint8Array, size: number) {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function collect(chunks: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = [];
  for await (const chunk of chunks) all.push(chunk);
  return Buffer.concat(all);
}

test.each([7, 64 * 1024, 10_000_000])(
  "messages in parts of %i bytes pass, unless one has too many values",
  async (size) => {
    expect(await collect(boundMessage(inPartsOf(few, size)))).toEqual(few);
    await expect(collect(boundMessage(inPartsOf(many, size)))).rejects.toThrow("must not have more than 100000 values");

    const frames = Buffer.concat(Array.from({ length: 3 }, () => encodeEnvelope(0, few)));
    expect(await collect(boundMessages(inPartsOf(frames, size)))).toEqual(frames);
    const small = Buffer.concat(Array.from({ length: 40_000 }, () => encodeEnvelope(0, Buffer.from("[0,1,2]"))));
    expect(await collect(boundMessages(inPartsOf(small, size)))).toEqual(small);
    const last = Buffer.concat([frames, encodeEnvelope(0, many)]);
    await expect(collect(boundMessages(inPartsOf(last, size)))).rejects.toThrow(
      "must not have more than 100000 values",
    );
  },
);
