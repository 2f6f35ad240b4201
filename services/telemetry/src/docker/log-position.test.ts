import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { cutMark } from "../domain/line-text.ts";
import { type LogRow, maxLineBytes, streamNames } from "../domain/rows.ts";
import type { LogFrame } from "./log-frames.ts";
import { createLogPosition } from "./log-position.ts";

const startNs = 1_800_000_000_000_000_000n;
const secondNs = 1_000_000_000n;

function frameOf(stream: LogFrame["stream"], timeNs: bigint, text: string): LogFrame {
  return { stream, timeNs, payload: Buffer.from(text) };
}

/**
 * What a container writes: each piece with the time since the one before, in nanoseconds, and whether it ends its line.
 */
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
  test("reading that restarts anywhere, any number of times, gives every line once", () => {
    fc.assert(
      fc.property(writing, fc.array(fc.nat({ max: 40 })), (pieces, stops) => {
        const frames = toFrames(pieces);
        const rows: LogRow[] = [];
        let cursor = "";
        for (const stop of [...stops.sort((a, b) => a - b), frames.length]) {
          const position = createLogPosition(cursor);
          const sinceNs = position.begin();
          for (const frame of frames.slice(0, stop)) {
            if (sinceNs !== undefined && frame.timeNs < sinceNs) continue;
            const row = position.take(frame);
            if (row) rows.push(row);
          }
          expect(position.end()).toBe(true);
          cursor = position.cursor();
        }
        expect(rows).toEqual(toRows(frames));
      }),
      { numRuns: 500 },
    );
  });

  test("reading the log's last frames again and again, however few, gives every line once, or doesn't reach the position", () => {
    const readShape = fc.record({
      at: fc.nat({ max: 40 }),
      frames: fc.integer({ min: 1, max: 12 }),
      anew: fc.boolean(),
    });
    fc.assert(
      fc.property(writing, fc.array(readShape), (pieces, reads) => {
        const frames = toFrames(pieces);
        const rows: LogRow[] = [];
        let position = createLogPosition("");
        const readAll = (log: readonly LogFrame[]) => rows.push(...log.flatMap((frame) => position.take(frame) ?? []));
        position.begin();
        readAll(frames.slice(0, 1));
        position.end();
        for (const read of reads.sort((a, b) => a.at - b.at)) {
          const log = frames.slice(0, Math.max(1, read.at));
          if (read.anew) position = createLogPosition(position.cursor());
          position.beginTail();
          readAll(log.slice(-read.frames));
          if (!position.seeking) expect(rows).toEqual(toRows(log));
        }
        const sinceNs = position.begin() ?? 0n;
        readAll(frames.filter((frame) => frame.timeNs >= sinceNs));
        expect(position.end()).toBe(true);
        expect(rows).toEqual(toRows(frames));
      }),
      { numRuns: 2_000 },
    );
  });

  test("the position is found among the last frames, unless the read begins at it", () => {
    const frames = [1n, 2n, 3n, 4n].map((at) => frameOf("stdout", startNs + at, `${at}\n`));
    const position = createLogPosition("");
    position.begin();
    for (const frame of frames.slice(0, 2)) position.take(frame);
    position.end();
    position.beginTail();
    expect(frames.slice(1).map((frame) => position.take(frame))).toEqual([undefined, undefined, undefined]);
    expect(position.seeking).toBe(true);
    position.beginTail();
    expect(frames.map((frame) => position.take(frame)?.log)).toEqual([undefined, undefined, "3", "4"]);
    expect(position.seeking).toBe(false);
  });

  test("a line that began before the last frames is not continued from them", () => {
    const begun = [
      frameOf("stderr", startNs, "a "),
      frameOf("stdout", startNs + 1n, "b "),
      frameOf("stderr", startNs, "a\n"),
      frameOf("stderr", startNs + 2n, "c\n"),
    ];
    const frames = [...begun, frameOf("stdout", startNs + 1n, "b\n")];
    const position = createLogPosition("");
    position.begin();
    for (const frame of begun) position.take(frame);
    position.beginTail();
    expect(frames.slice(2).map((frame) => position.take(frame))).toEqual([undefined, undefined, undefined]);
    expect(position.seeking).toBe(true);
    position.begin();
    expect(frames.flatMap((frame) => position.take(frame) ?? [])).toMatchObject([{ log: "b b" }]);
  });

  test("nor is what follows of a line that was cut", () => {
    const part = frameOf("stdout", startNs, "x".repeat(maxLineBytes));
    const frames = [part, part, frameOf("stderr", startNs + 1n, "a\n"), frameOf("stderr", startNs + 2n, "b\n")];
    const position = createLogPosition("");
    position.begin();
    for (const frame of frames) position.take(frame);
    const cursor = position.cursor();
    position.beginTail();
    for (const frame of [...frames.slice(2), part]) position.take(frame);
    expect(position.seeking).toBe(true);
    expect(position.cursor()).toBe(cursor);
  });

  test("lines after a position that the log has lost are all the later ones", () => {
    const before = createLogPosition("");
    before.begin();
    before.take(frameOf("stdout", startNs, "gone\n"));
    const position = createLogPosition(before.cursor());
    const left = [frameOf("stderr", startNs + 5n * secondNs, "a\n"), frameOf("stdout", startNs + 6n * secondNs, "b\n")];
    position.begin();
    expect(left.map((frame) => position.take(frame))).toEqual([undefined, undefined]);
    expect(position.end()).toBe(false);
    position.begin();
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
    position.begin();
    for (const frame of frames.slice(0, 2)) position.take(frame);
    position.end();
    position.beginTail();
    expect(frames.map((frame) => position.take(frame)?.log)).toEqual([undefined, undefined, "c"]);
  });

  test("a clock set back before the other stream begins loses nothing either", () => {
    const begun = [
      frameOf("stdout", startNs + 99n * secondNs, "a\n"),
      frameOf("stdout", startNs + 100n * secondNs, "b\n"),
    ];
    const frames = [...begun, frameOf("stderr", startNs, "c\n"), frameOf("stdout", startNs + secondNs, "d\n")];
    const position = createLogPosition("");
    position.begin();
    for (const frame of begun) position.take(frame);
    position.end();
    position.beginTail();
    expect(frames.flatMap((frame) => position.take(frame) ?? [])).toEqual([]);
    expect(position.seeking).toBe(true);
    const sinceNs = position.begin() ?? 0n;
    const rows = frames.filter((frame) => frame.timeNs >= sinceNs).flatMap((frame) => position.take(frame) ?? []);
    expect(rows).toMatchObject([{ log: "c" }, { log: "d" }]);
    expect(position.end()).toBe(true);
  });

  test("a line that is too long is cut once, between two characters, and the next is whole", () => {
    const position = createLogPosition("");
    position.begin();
    const part = "€".repeat(5_000);
    const taken = Array.from({ length: 10 }, () => position.take(frameOf("stdout", startNs, part)));
    const [line, ...more] = taken.filter((row) => row !== undefined);
    expect(more).toEqual([]);
    expect(line).toMatchObject({ timeNs: startNs, log: expect.stringMatching(/^€+ …\[cut\]$/) });
    expect(Buffer.byteLength(line?.log ?? "")).toBeLessThanOrEqual(maxLineBytes);

    // Also when reading restarts within the rest of it.
    const again = createLogPosition(position.cursor());
    again.begin();
    const rest = [frameOf("stdout", startNs, `${part}\n`), frameOf("stdout", startNs + 1n, "next\n")];
    const frames = [...Array.from({ length: 10 }, () => frameOf("stdout", startNs, part)), ...rest];
    expect(frames.map((frame) => again.take(frame)).filter((row) => row)).toMatchObject([{ log: "next" }]);
  });

  test("a line of exactly the maximum length is whole", () => {
    const position = createLogPosition("");
    position.begin();
    expect(position.take(frameOf("stdout", startNs, `${"x".repeat(maxLineBytes)}\n`))).toMatchObject({
      log: "x".repeat(maxLineBytes),
    });
    expect(position.take(frameOf("stdout", startNs + 1n, `${"x".repeat(maxLineBytes + 1)}\n`))).toMatchObject({
      log: "x".repeat(maxLineBytes - Buffer.byteLength(cutMark)) + cutMark,
    });
  });

  test("invalid UTF-8 becomes U+FFFD, and a character in two segments is whole", () => {
    const position = createLogPosition("");
    position.begin();
    expect(
      position.take({ stream: "stdout", timeNs: startNs, payload: Buffer.from([0x61, 0xff, 0x0a]) }),
    ).toMatchObject({
      log: "a\uFFFD",
    });
    const [first, second] = [Buffer.from("€").subarray(0, 2), Buffer.from("€\n").subarray(2)];
    expect(position.take({ stream: "stderr", timeNs: startNs, payload: first })).toBeUndefined();
    expect(position.take({ stream: "stderr", timeNs: startNs, payload: second })).toMatchObject({ log: "€" });
  });

  test("a last line without line end ends with its container, once", () => {
    const frames = [frameOf("stdout", startNs, "whole\n"), frameOf("stdout", startNs + 1n, "rest")];
    const position = createLogPosition("");
    position.begin();
    for (const frame of frames) position.take(frame);
    expect(position.finish()).toEqual([{ timeNs: startNs + 1n, stream: "stdout", log: "rest" }]);
    expect(position.finish()).toEqual([]);
    const again = createLogPosition(position.cursor());
    again.begin();
    expect(frames.map((frame) => again.take(frame))).toEqual([undefined, undefined]);
    expect(again.finish()).toEqual([]);
  });

  test("a malformed cursor is refused", () => {
    expect(() => createLogPosition("stdout/12")).toThrow("stdout/12");
  });
});
