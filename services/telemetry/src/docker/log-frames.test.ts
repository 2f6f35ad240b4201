import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createTimeParser } from "../domain/time-text.ts";
import { createFrameParser } from "./log-frames.ts";

function frame(type: number, text: string): Buffer {
  const payload = Buffer.from(text);
  const header = Buffer.alloc(8);
  header.writeUInt8(type, 0);
  header.writeUInt32BE(payload.length, 4);
  return Buffer.concat([header, payload]);
}

describe("the engine's stream", () => {
  test("is parsed alike, whatever its chunks", () => {
    const stream = Buffer.concat([
      frame(1, "2026-11-21T15:00:20.525744314Z hello world\n"),
      frame(2, "2026-11-21T15:00:20.525744315Z \n"),
      frame(1, "2026-11-21T15:00:21.000000000Z part"),
    ]);
    const expected = [
      { stream: "stdout", timeNs: 1_795_273_220_525_744_314n, payload: "hello world\n" },
      { stream: "stderr", timeNs: 1_795_273_220_525_744_315n, payload: "\n" },
      { stream: "stdout", timeNs: 1_795_273_221_000_000_000n, payload: "part" },
    ];
    fc.assert(
      fc.property(fc.array(fc.nat({ max: stream.length }), { maxLength: 10 }), (cuts) => {
        const parse = createFrameParser();
        const ends = [...cuts.sort((a, b) => a - b), stream.length];
        const frames = ends.flatMap((end, i) => [...parse(stream.subarray(ends[i - 1] ?? 0, end))]);
        expect(frames.map((each) => ({ ...each, payload: each.payload.toString() }))).toEqual(expected);
      }),
    );
  });

  test("throws what the engine can't read, after the lines before it", () => {
    const bytes = [frame(1, "2026-11-21T15:00:21Z before\n"), frame(3, "Error grabbing logs: input/output error\n")];
    const texts: string[] = [];
    const read = () => {
      for (const { payload } of createFrameParser()(Buffer.concat(bytes))) texts.push(payload.toString());
    };
    expect(read).toThrow("Error grabbing logs: input/output error");
    expect(texts).toEqual(["before\n"]);
  });

  test("has times to the nanosecond, in any offset", () => {
    const parse = createTimeParser();
    expect(parse("1970-01-01T00:00:01Z")).toBe(1_000_000_000n);
    expect(parse("1970-01-01T00:00:01.5Z")).toBe(1_500_000_000n);
    expect(parse("1970-01-01T01:00:01.000000007+01:00")).toBe(1_000_000_007n);
    expect(() => parse("yesterday")).toThrow("yesterday");
  });
});
