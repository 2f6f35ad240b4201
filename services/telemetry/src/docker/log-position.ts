import { type LogRow, type StreamName, streamNames } from "../store/rows.ts";
import type { LogFrame } from "./log-frames.ts";

/** A frame by what the engine says of it: the `ordinal`th (from 1) of its stream with that time. */
interface FramePlace {
  stream: StreamName;
  timeNs: bigint;
  ordinal: number;
}

/** A line that has begun and not ended. */
interface OpenLine {
  first: FramePlace;
  /** What was read of it; undefined while reading again has not come to its first frame. */
  parts: Buffer[] | undefined;
  bytes: number;
  /** It was given out cut; the rest is dropped. */
  cut: boolean;
}

/** A line's bytes in UTF-8, the mark of a cut one included. */
export const maxLineBytes = 64 * 1024;
export const cutMark = " …[cut]";

/**
 * How far before the place reached reading starts again. The frames of two streams may stand in the log out of their times'
 * order, and a clock may be set back a little.
 */
const overlapNs = 2_000_000_000n;

/** The frame is its time's first or a later one: reading may have begun among frames of that time. Equals no ordinal. */
const unknownOrdinal = Number.NaN;

/**
 * Where a container's log was read to, and the lines that were open there. The engine's log has no numbers, so the place is
 * the last frame taken, by stream, time and ordinal: reading again starts some frames before it, finds that very frame, and
 * goes on behind it in the log's own order.
 */
export interface LogPosition {
  /** True when there is a place to find again. */
  readonly started: boolean;
  /** True while a reading has not come to that place, or can't go on for want of frames before it. */
  readonly seeking: boolean;
  /** Begins a complete reading. Answers the time from which the engine must give frames; undefined: from the log's beginning. */
  begin(): bigint | undefined;
  /** Begins a reading of the log's last frames, however many, once there is a place to find again. */
  beginTail(): void;
  /** Takes the reading's next frame and answers the line that it completes. */
  take(frame: LogFrame): LogRow | undefined;
  /**
   * Ends a complete reading. False: the place is not in the log any more, and lines behind it may be lost; another complete
   * reading then takes all that is later.
   */
  end(): boolean;
  /** Ends the lines still open, whose container has ended and will not end them. */
  finish(): LogRow[];
  /** The position as text, for createLogPosition. */
  cursor(): string;
}

/** `cursor` "" or "0" is the beginning. Throws for a text that is no cursor. */
export function createLogPosition(cursor: string): LogPosition {
  const restored = parseCursor(cursor);
  let anchor = restored.anchor;
  const open = restored.open;
  let seeking = false;
  let lost = false;
  /** Only the log's last frames are being read. */
  let isTail = false;
  /** The time of this reading's first frame. */
  let firstNs: bigint | undefined;
  /** The time of the frame that a tail could not be read on with; after a clock was set back, well before the place reached. */
  let stoppedNs: bigint | undefined;
  /** The last frame of each stream in this reading. */
  let last: Partial<Record<StreamName, FramePlace>> = {};

  const restart = (reading: "complete" | "tail"): void => {
    isTail = reading === "tail";
    firstNs = undefined;
    seeking = anchor !== undefined && !lost;
    last = {};
    for (const stream of streamNames) {
      const line = open[stream];
      if (!line) continue;
      line.parts = undefined;
      line.bytes = 0;
    }
  };

  /** Frames of other times than the tail's first, which may stand before it too, are later, and all in it. */
  const locate = ({ stream, timeNs }: LogFrame): FramePlace => {
    firstNs ??= timeNs;
    const before = last[stream];
    if (before) return { stream, timeNs, ordinal: before.timeNs === timeNs ? before.ordinal + 1 : 1 };
    return { stream, timeNs, ordinal: isTail && timeNs <= firstNs ? unknownOrdinal : 1 };
  };

  /** While the place is sought: gathers the open lines' parts again. */
  const seek = (frame: LogFrame, place: FramePlace): void => {
    const line = open[frame.stream];
    if (line && !line.parts && isSame(line.first, place)) line.parts = [];
    if (line?.parts && !line.cut) {
      line.parts.push(Buffer.from(frame.payload));
      line.bytes += frame.payload.length;
    }
    if (!anchor || !isSame(anchor, place)) return;
    const isWhole = streamNames.every((stream) => !open[stream] || open[stream].parts || open[stream].cut);
    seeking = isTail && !isWhole;
  };

  const read = (frame: LogFrame, place: FramePlace): LogRow | undefined => {
    anchor = place;
    const { stream, payload } = frame;
    const ends = payload.at(-1) === 0x0a;
    const content = ends ? payload.subarray(0, -1) : payload;
    const line = open[stream];
    if (ends) delete open[stream];
    if (!line) {
      if (ends) return { timeNs: frame.timeNs, stream, log: decodeLine([content], false) };
      open[stream] = { first: place, parts: [Buffer.from(content)], bytes: content.length, cut: false };
      return undefined;
    }
    if (line.cut) return undefined;
    const parts = line.parts ?? [];
    // A copy: the frame's own memory is that of a whole read of the socket.
    parts.push(Buffer.from(content));
    line.parts = parts;
    line.bytes += content.length;
    const cut = line.bytes > maxLineBytes;
    if (!ends && !cut) return undefined;
    line.cut = cut;
    line.parts = [];
    return { timeNs: line.first.timeNs, stream, log: decodeLine(parts, cut) };
  };

  return {
    get started() {
      return anchor !== undefined;
    },
    get seeking() {
      return seeking;
    },
    begin() {
      restart("complete");
      if (!anchor) return undefined;
      let sinceNs = anchor.timeNs;
      for (const neededNs of [stoppedNs, ...streamNames.map((stream) => open[stream]?.first.timeNs)]) {
        if (neededNs !== undefined && neededNs < sinceNs) sinceNs = neededNs;
      }
      return sinceNs > overlapNs ? sinceNs - overlapNs : 0n;
    },
    beginTail() {
      restart("tail");
    },
    take(frame) {
      const place = locate(frame);
      last[frame.stream] = place;
      if (seeking) {
        seek(frame, place);
        return undefined;
      }
      if (Number.isNaN(place.ordinal)) {
        seeking = true;
        stoppedNs = frame.timeNs;
        return undefined;
      }
      if (lost) {
        if (anchor && frame.timeNs <= anchor.timeNs) return undefined;
        lost = false;
      }
      return read(frame, place);
    },
    end() {
      if (!seeking) {
        lost = false;
        stoppedNs = undefined;
        return true;
      }
      seeking = false;
      lost = true;
      for (const stream of streamNames) delete open[stream];
      return false;
    },
    finish() {
      return streamNames.flatMap((stream) => {
        const line = open[stream];
        delete open[stream];
        if (!line || line.cut) return [];
        return { timeNs: line.first.timeNs, stream, log: decodeLine(line.parts ?? [], false) };
      });
    },
    cursor: () => formatCursor(anchor, open),
  };
}

function isSame(a: FramePlace, b: FramePlace): boolean {
  return a.timeNs === b.timeNs && a.stream === b.stream && a.ordinal === b.ordinal;
}

/** Invalid UTF-8 becomes U+FFFD. A line too long ends at a character's end, with the mark. */
function decodeLine(parts: readonly Buffer[], cut: boolean): string {
  const [only] = parts;
  const text = (parts.length === 1 && only ? only : Buffer.concat(parts)).toString("utf8");
  // The replacement of invalid bytes may have made it too long as well.
  const encoded = cut || text.length > maxLineBytes / 3 ? Buffer.from(text) : undefined;
  if (!encoded || (!cut && encoded.length <= maxLineBytes)) return text;
  let end = Math.min(encoded.length, maxLineBytes - Buffer.byteLength(cutMark));
  while (end > 0 && ((encoded[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return encoded.toString("utf8", 0, end) + cutMark;
}

// A cursor is one item per part, separated by spaces: the last frame taken, then each open line's first frame, marked `+`,
// or `-` when the line was given out cut.

function formatCursor(anchor: FramePlace | undefined, open: Partial<Record<StreamName, OpenLine>>): string {
  if (!anchor) return "0";
  const lines = streamNames.flatMap((stream) => open[stream] ?? []);
  return [formatPlace(anchor), ...lines.map((line) => (line.cut ? "-" : "+") + formatPlace(line.first))].join(" ");
}

function formatPlace({ stream, timeNs, ordinal }: FramePlace): string {
  return `${stream}/${timeNs}/${ordinal}`;
}

function parseCursor(cursor: string): {
  anchor: FramePlace | undefined;
  open: Partial<Record<StreamName, OpenLine>>;
} {
  const open: Partial<Record<StreamName, OpenLine>> = {};
  if (cursor === "" || cursor === "0") return { anchor: undefined, open };
  const [anchor = "", ...lines] = cursor.split(" ");
  for (const line of lines) {
    const first = parsePlace(line.slice(1));
    open[first.stream] = { first, parts: undefined, bytes: 0, cut: line.startsWith("-") };
  }
  return { anchor: parsePlace(anchor), open };
}

function parsePlace(text: string): FramePlace {
  const [, name, time, ordinal] = /^(\w+)\/(\d+)\/(\d+)$/.exec(text) ?? [];
  const stream = streamNames.find((known) => known === name);
  if (!stream || time === undefined) throw new Error(`not a place in a container's log: ${text}`);
  return { stream, timeNs: BigInt(time), ordinal: Number(ordinal) };
}
