import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { LogFrame } from "./docker-log-frames.ts";
import { createLogPosition, cutMark, maxLineBytes } from "./docker-log-position.ts";
import { type LogRow, streamNames } from "./rows.ts";

const startNs = 1_800_000_000_000_000_000n;
const secondNs = 1_000_000_000n;

function frameOf(stream: LogFrame["stream"], timeNs: bigint, text: string): LogFrame {
  return { stream, timeNs, payload: Buffer.from(text) };
}

/** What a container writes: each piece with the time since the one before, in nanoseconds, and whether it ends its line. */
const writing = fc.array(
  fc.record({
    stream: fc.constantFrom(...streamNames),
    afterNs: fc.constantFrom(0n, 0n, 1n, 1_000n, 700_000_000n, 5n * secondNs),
    ends: fc.boolean(),
  }),
  { maxLength: 40 },
);

/** The engine's log of it: the parts of one line share the first one's time, and no stream goes back in time. */
function toFrames(pieces: readonly { stream: LogFrame["stream"]; afterNs: bigint; ends: boolean }[]): LogFrame[] {
  let now = startNs;
  const openSince: Partial<Record<LogFrame["stream"], bigint>> = {};
  return pieces.map(({ stream, afterNs, ends }, i) => {
    now += afterNs;
    const timeNs = openSince[stream] ?? now;
    if (ends) delete openSince[stream];
    else openSince[stream] = timeNs;
    return frameOf(stream, timeNs, `${i}${ends ? "\n" : ","}`);
  });
}

/** The lines of a log read once from its beginning. */
function toRows(frames: readonly LogFrame[]): LogRow[] {
  const open: Partial<Record<LogFrame["stream"], LogRow>> = {};
  return frames.flatMap(({ stream, timeNs, payload }) => {
    const text = payload.toString();
    const line = open[stream] ?? { timeNs, stream, log: "" };
    line.log += text.replace(/\n$/, "");
    open[stream] = line;
    if (!text.endsWith("\n")) return [];
    delete open[stream];
    return [line];
  });
}

describe("the position in a container's log", () => {
  test("reading that starts anew anywhere, any number of times, gives every line once", () => {
    fc.assert(
      fc.property(writing, fc.array(fc.nat({ max: 40 })), (pieces, stops) => {
        const frames = toFrames(pieces);
        const rows: LogRow[] = [];
        let cursor = "";
        for (const stop of [...stops.sort((a, b) => a - b), frames.length]) {
          const position = createLogPosition(cursor);
          const sinceNs = position.begin("complete");
          for (const frame of frames.slice(0, stop)) {
            if (sinceNs !== undefined && frame.timeNs < sinceNs) continue;
            const row = position.take(frame);
            if (row && row !== "unsure") rows.push(row);
          }
          expect(position.end()).toBe(true);
          cursor = position.cursor();
        }
        expect(rows).toEqual(toRows(frames));
      }),
      { numRuns: 500 },
    );
  });

  test("an engine that repeats its newest file to a follower makes it read again, and nothing comes twice", () => {
    fc.assert(
      fc.property(writing, fc.nat({ max: 40 }), fc.nat({ max: 40 }), (pieces, at, back) => {
        const frames = toFrames(pieces);
        const rotation = Math.min(at, frames.length);
        const repeatedFrom = Math.max(0, rotation - back);
        const told = [...frames.slice(0, rotation), ...frames.slice(repeatedFrom)];
        const rows: LogRow[] = [];
        const position = createLogPosition("");
        position.begin("following");
        const unsure = told.some((frame) => {
          const row = position.take(frame);
          if (row && row !== "unsure") rows.push(row);
          return row === "unsure";
        });
        if (unsure) {
          const sinceNs = position.begin("complete") ?? 0n;
          for (const frame of frames) {
            const row = frame.timeNs < sinceNs ? undefined : position.take(frame);
            if (row && row !== "unsure") rows.push(row);
          }
          expect(position.end()).toBe(true);
        }
        expect(rows).toEqual(toRows(frames));
      }),
    );
  });

  test("lines behind a place that the log has lost are all those later", () => {
    const before = createLogPosition("");
    before.begin("complete");
    before.take(frameOf("stdout", startNs, "gone\n"));
    const position = createLogPosition(before.cursor());
    const left = [frameOf("stderr", startNs + 5n * secondNs, "a\n"), frameOf("stdout", startNs + 6n * secondNs, "b\n")];
    position.begin("complete");
    expect(left.map((frame) => position.take(frame))).toEqual([undefined, undefined]);
    expect(position.end()).toBe(false);
    position.begin("complete");
    expect(left.map((frame) => position.take(frame))).toMatchObject([{ log: "a" }, { log: "b" }]);
    expect(position.end()).toBe(true);
  });

  test("a clock set back loses nothing", () => {
    const frames = [
      frameOf("stdout", startNs + 100n * secondNs, "a\n"),
      frameOf("stdout", startNs, "b\n"),
      frameOf("stdout", startNs + secondNs, "c\n"),
    ];
    const position = createLogPosition("");
    position.begin("following");
    expect(frames.slice(0, 2).map((frame) => position.take(frame))).toMatchObject([{ log: "a" }, "unsure"]);
    const sinceNs = position.begin("complete") ?? 0n;
    const rows = frames.filter((frame) => frame.timeNs >= sinceNs).map((frame) => position.take(frame));
    expect(rows).toMatchObject([undefined, { log: "b" }, { log: "c" }]);
  });

  test("a line too long is cut once, at a character's end, and the next is whole", () => {
    const position = createLogPosition("");
    position.begin("complete");
    const part = "€".repeat(5_000);
    const taken = Array.from({ length: 10 }, () => position.take(frameOf("stdout", startNs, part)));
    const [line, ...more] = taken.filter((row) => row !== undefined);
    expect(more).toEqual([]);
    expect(line).toMatchObject({ timeNs: startNs, log: expect.stringMatching(/^€+ …\[cut\]$/) });
    expect(Buffer.byteLength(line === "unsure" || !line ? "" : line.log)).toBeLessThanOrEqual(maxLineBytes);

    // Also when reading starts anew within the rest of it.
    const again = createLogPosition(position.cursor());
    again.begin("complete");
    const rest = [frameOf("stdout", startNs, `${part}\n`), frameOf("stdout", startNs + 1n, "next\n")];
    const frames = [...Array.from({ length: 10 }, () => frameOf("stdout", startNs, part)), ...rest];
    expect(frames.map((frame) => again.take(frame)).filter((row) => row)).toMatchObject([{ log: "next" }]);
  });

  test("a line of just the greatest length is whole", () => {
    const position = createLogPosition("");
    position.begin("following");
    expect(position.take(frameOf("stdout", startNs, `${"x".repeat(maxLineBytes)}\n`))).toMatchObject({
      log: "x".repeat(maxLineBytes),
    });
    expect(position.take(frameOf("stdout", startNs + 1n, `${"x".repeat(maxLineBytes + 1)}\n`))).toMatchObject({
      log: "x".repeat(maxLineBytes - Buffer.byteLength(cutMark)) + cutMark,
    });
  });

  test("invalid UTF-8 becomes U+FFFD, and a character in two parts is whole", () => {
    const position = createLogPosition("");
    position.begin("following");
    expect(
      position.take({ stream: "stdout", timeNs: startNs, payload: Buffer.from([0x61, 0xff, 0x0a]) }),
    ).toMatchObject({
      log: "a\uFFFD",
    });
    const [first, second] = [Buffer.from("€").subarray(0, 2), Buffer.from("€\n").subarray(2)];
    expect(position.take({ stream: "stderr", timeNs: startNs, payload: first })).toBeUndefined();
    expect(position.take({ stream: "stderr", timeNs: startNs, payload: second })).toMatchObject({ log: "€" });
  });

  test("a last line without line end is ended with its container, once", () => {
    const frames = [frameOf("stdout", startNs, "whole\n"), frameOf("stdout", startNs + 1n, "rest")];
    const position = createLogPosition("");
    position.begin("complete");
    for (const frame of frames) position.take(frame);
    expect(position.finish()).toEqual([{ timeNs: startNs + 1n, stream: "stdout", log: "rest" }]);
    expect(position.finish()).toEqual([]);
    const again = createLogPosition(position.cursor());
    again.begin("complete");
    expect(frames.map((frame) => again.take(frame))).toEqual([undefined, undefined]);
    expect(again.finish()).toEqual([]);
  });

  test("a text that is no cursor is refused", () => {
    expect(() => createLogPosition("stdout/12")).toThrow("stdout/12");
  });
});
