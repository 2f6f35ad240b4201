import { decodeLine } from "../domain/line-text.ts";
import { type LogRow, maxLineBytes, type StreamName, streamNames } from "../domain/rows.ts";
import type { LogFrame } from "./log-frames.ts";

/**
 * What identifies a frame, since the engine doesn't number them: the `ordinal`th (from 1) of its stream with that time.
 */
interface FrameId {
  stream: StreamName;
  timeNs: bigint;
  ordinal: number;
}

/** A line whose end has not been read. */
interface OpenLine {
  first: FrameId;
  /** What was read of it; undefined until a new read has come to its first frame. */
  segments: Buffer[] | undefined;
  bytes: number;
  /** The line was returned cut; what follows of it is dropped. */
  cut: boolean;
}

/**
 * How far before the last frame a new read starts. Frames of the two streams may be in the log out of the order of
 * their times, and a clock may be set back a little.
 */
const overlapNs = 2_000_000_000n;

/** Reading may have begun among frames of that time, so it is unknown which one this is. Equals no ordinal. */
const unknownOrdinal = Number.NaN;

/**
 * Where a container's log was read to, and the lines that were open there. The position is the last frame that was
 * read: a new read starts some frames earlier, seeks that very frame, and continues after it in the log's own order.
 */
export interface LogPosition {
  /** True once a frame was read. */
  readonly started: boolean;
  /** True until a read has come to the last frame, or when it can't continue because it lacks earlier frames. */
  readonly seeking: boolean;
  /** Begins a complete read. Returns the time from which frames are needed; undefined: from the log's beginning. */
  begin(): bigint | undefined;
  /** Begins a read of the log's last frames, however many, once `started`. */
  beginTail(): void;
  /** Takes the next frame and returns the line that it completes. */
  take(frame: LogFrame): LogRow | undefined;
  /**
   * Ends a complete read. False: the last frame is no longer in the log, so lines after it may be lost, as after
   * `lose`.
   */
  end(): boolean;
  /** Lines after the last frame are lost, whatever came of the read: the next complete one takes all that is later. */
  lose(): void;
  /** Returns the open lines, which a container that has ended will not complete. */
  finish(): LogRow[];
  /** The position as text, for createLogPosition. */
  cursor(): string;
}

/** The cursor "" or "0" is the beginning. Throws for a malformed one. */
export function createLogPosition(cursor: string): LogPosition {
  const restored = parseCursor(cursor);
  let lastRead = restored.lastRead;
  const open = restored.open;
  let seeking = false;
  let lost = false;
  /** Whether only the log's last frames are being read. */
  let isTail = false;
  /** The time of this read's first frame. */
  let firstNs: bigint | undefined;
  /** Where a read of the tail stopped; after a clock was set back, well before the last frame's time. */
  let stoppedNs: bigint | undefined;
  /** The last frame of each stream in this read. */
  let previous: Partial<Record<StreamName, FrameId>> = {};

  const restart = (extent: "complete" | "tail"): void => {
    isTail = extent === "tail";
    firstNs = undefined;
    seeking = lastRead !== undefined && !lost;
    previous = {};
    for (const stream of streamNames) {
      const line = open[stream];
      if (!line) continue;
      line.segments = undefined;
      line.bytes = 0;
    }
  };

  /**
   * Frames of the tail's first time may also stand before the tail. Those of other times are later, so it has them all.
   */
  const identify = ({ stream, timeNs }: LogFrame): FrameId => {
    firstNs ??= timeNs;
    const before = previous[stream];
    if (before) return { stream, timeNs, ordinal: before.timeNs === timeNs ? before.ordinal + 1 : 1 };
    return { stream, timeNs, ordinal: isTail && timeNs <= firstNs ? unknownOrdinal : 1 };
  };

  /** Seeks the last frame, and collects the open lines' segments again on the way. */
  const seek = (frame: LogFrame, id: FrameId): void => {
    const line = open[frame.stream];
    if (line && !line.segments && isSame(line.first, id)) line.segments = [];
    if (line?.segments && !line.cut) {
      line.segments.push(Buffer.from(frame.payload));
      line.bytes += frame.payload.length;
    }
    if (!lastRead || !isSame(lastRead, id)) return;
    const isWhole = streamNames.every((stream) => !open[stream] || open[stream].segments || open[stream].cut);
    seeking = isTail && !isWhole;
  };

  const read = (frame: LogFrame, id: FrameId): LogRow | undefined => {
    lastRead = id;
    const { stream, payload } = frame;
    const endsLine = payload.at(-1) === 0x0a;
    const content = endsLine ? payload.subarray(0, -1) : payload;
    const line = open[stream];
    if (endsLine) delete open[stream];
    if (!line) {
      if (endsLine) return { timeNs: frame.timeNs, stream, log: decodeLine([content], false) };
      open[stream] = { first: id, segments: [Buffer.from(content)], bytes: content.length, cut: false };
      return undefined;
    }
    if (line.cut) return undefined;
    const segments = line.segments ?? [];
    // A copy, since the frame shares its memory with a whole chunk of the socket.
    segments.push(Buffer.from(content));
    line.segments = segments;
    line.bytes += content.length;
    const cut = line.bytes > maxLineBytes;
    if (!endsLine && !cut) return undefined;
    line.cut = cut;
    line.segments = [];
    return { timeNs: line.first.timeNs, stream, log: decodeLine(segments, cut) };
  };

  const lose = (): void => {
    seeking = false;
    lost = true;
    for (const stream of streamNames) delete open[stream];
  };

  return {
    get started() {
      return lastRead !== undefined;
    },
    get seeking() {
      return seeking;
    },
    begin() {
      restart("complete");
      if (!lastRead) return undefined;
      let sinceNs = lastRead.timeNs;
      for (const neededNs of [stoppedNs, ...streamNames.map((stream) => open[stream]?.first.timeNs)]) {
        if (neededNs !== undefined && neededNs < sinceNs) sinceNs = neededNs;
      }
      return sinceNs > overlapNs ? sinceNs - overlapNs : 0n;
    },
    beginTail() {
      restart("tail");
    },
    take(frame) {
      const id = identify(frame);
      previous[frame.stream] = id;
      if (seeking) {
        seek(frame, id);
        return undefined;
      }
      if (Number.isNaN(id.ordinal)) {
        seeking = true;
        stoppedNs = frame.timeNs;
        return undefined;
      }
      if (lost) {
        if (lastRead && frame.timeNs <= lastRead.timeNs) return undefined;
        lost = false;
      }
      return read(frame, id);
    },
    end() {
      if (!seeking) {
        lost = false;
        stoppedNs = undefined;
        return true;
      }
      lose();
      return false;
    },
    lose,
    finish() {
      return streamNames.flatMap((stream) => {
        const line = open[stream];
        delete open[stream];
        if (!line || line.cut) return [];
        return { timeNs: line.first.timeNs, stream, log: decodeLine(line.segments ?? [], false) };
      });
    },
    cursor: () => formatCursor(lastRead, open),
  };
}

function isSame(a: FrameId, b: FrameId): boolean {
  return a.timeNs === b.timeNs && a.stream === b.stream && a.ordinal === b.ordinal;
}

// A cursor is the last frame, then the first frame of each open line, marked `+`, or `-` when the line was returned
// cut. They are separated by spaces.

function formatCursor(lastRead: FrameId | undefined, open: Partial<Record<StreamName, OpenLine>>): string {
  if (!lastRead) return "0";
  const lines = streamNames.flatMap((stream) => open[stream] ?? []);
  return [formatFrameId(lastRead), ...lines.map((line) => (line.cut ? "-" : "+") + formatFrameId(line.first))].join(
    " ",
  );
}

function formatFrameId({ stream, timeNs, ordinal }: FrameId): string {
  return `${stream}/${timeNs}/${ordinal}`;
}

function parseCursor(cursor: string): {
  lastRead: FrameId | undefined;
  open: Partial<Record<StreamName, OpenLine>>;
} {
  const open: Partial<Record<StreamName, OpenLine>> = {};
  if (cursor === "" || cursor === "0") return { lastRead: undefined, open };
  const [lastRead = "", ...lines] = cursor.split(" ");
  for (const line of lines) {
    const first = parseFrameId(line.slice(1));
    open[first.stream] = { first, segments: undefined, bytes: 0, cut: line.startsWith("-") };
  }
  return { lastRead: parseFrameId(lastRead), open };
}

function parseFrameId(text: string): FrameId {
  const [, name, time, ordinal] = /^(\w+)\/(\d+)\/(\d+)$/.exec(text) ?? [];
  const stream = streamNames.find((known) => known === name);
  if (!stream || time === undefined) throw new Error(`not a position in a container's log: ${text}`);
  return { stream, timeNs: BigInt(time), ordinal: Number(ordinal) };
}
