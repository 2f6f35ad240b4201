import { Readable } from "node:stream";
import fc from "fast-check";
import { expect, test } from "vitest";
import { mebibyte } from "./sizes.ts";
import { createFrameSplitter, readLines } from "./streams.ts";

async function linesOf(chunks: readonly (Uint8Array | string)[]): Promise<string[]> {
  const lines: string[] = [];
  for await (const line of readLines(Readable.from(chunks))) lines.push(line);
  return lines;
}

function frameOf(bytes: number): Buffer {
  const frame = Buffer.alloc(8 + bytes, "x");
  frame.writeUInt32BE(bytes, 4);
  return frame;
}

test("lines are the same, whatever the chunks", async () => {
  const bytes = Buffer.from("one\n\nzwei, ü €\nlast");
  const lines = ["one", "", "zwei, ü €", "last"];
  expect(await linesOf(Array.from(bytes, (byte) => Buffer.of(byte)))).toEqual(lines);
  expect(await linesOf([bytes])).toEqual(lines);
  expect(await linesOf([bytes.toString(), "\n"])).toEqual(lines);
});

test("a line of 16 MiB in small chunks is read in linear time, a longer one refused", async () => {
  // In quadratic time this takes many minutes.
  const chunks = Array.from({ length: (16 * mebibyte) / 256 }, () => Buffer.alloc(256, "x"));
  const [line, ...others] = await linesOf(chunks);
  expect([line?.length, others]).toEqual([16 * mebibyte, []]);
  await expect(linesOf([...chunks, "x"])).rejects.toThrow("more than 16777216 bytes");
});

test("frames are the same, whatever the chunks", () => {
  const frames = [frameOf(3), frameOf(0), frameOf(100), frameOf(7)];
  const stream = Buffer.concat([...frames, frameOf(10).subarray(0, 17)]);
  fc.assert(
    fc.property(fc.array(fc.nat({ max: stream.length }), { maxLength: 10 }), (cuts) => {
      const split = createFrameSplitter(8);
      const ends = [...cuts.sort((a, b) => a - b), stream.length];
      expect(ends.flatMap((end, i) => split(stream.subarray(ends[i - 1] ?? 0, end)))).toEqual(frames);
    }),
  );
});

test("a frame of 16 MiB in small chunks is read in linear time, a longer one refused at its head", () => {
  const frame = frameOf(16 * mebibyte - 8);
  const split = createFrameSplitter(8);
  let frames: Buffer[] = [];
  // In quadratic time this takes hours.
  for (let at = 0; at < frame.length; at += 16) frames = [...frames, ...split(frame.subarray(at, at + 16))];
  expect(frames.map(({ length }) => length)).toEqual([frame.length]);
  expect(() => createFrameSplitter(8)(frameOf(16 * mebibyte - 7).subarray(0, 8))).toThrow("more than 16777216 bytes");
});
