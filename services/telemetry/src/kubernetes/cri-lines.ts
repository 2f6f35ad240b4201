import { decodeLine } from "../domain/line-text.ts";
import { type LogRow, maxLineBytes, type StreamName, streamNames } from "../domain/rows.ts";
import { createTimeParser } from "../domain/time-text.ts";

/** A record of a log file in the format of the Container Runtime Interface: a line, or a segment of a long one. */
export interface CriRecord {
  stream: StreamName;
  timeNs: bigint;
  /** Whether the record is the last of its line. */
  endsLine: boolean;
  content: Buffer;
}

const space = 0x20;
/**
 * A runtime may write each byte of a line as a segment of its own, and each that is kept costs a hundred bytes or more.
 */
const maxSegments = 64;

/** Parses `<RFC 3339 time> stdout|stderr P|F <content>`; tags may follow the P (partial) or F (full), after a colon. */
export function createRecordParser(): (text: Buffer) => CriRecord | undefined {
  const parseTime = createTimeParser();
  return (text) => {
    const afterTime = text.indexOf(space);
    const afterStream = text.indexOf(space, afterTime + 1);
    if (afterTime < 0 || afterStream < 0) return undefined;
    const name = text.toString("latin1", afterTime + 1, afterStream);
    const stream = streamNames.find((known) => known === name);
    const afterTags = text.indexOf(space, afterStream + 1);
    const [tag] = text.toString("latin1", afterStream + 1, afterTags < 0 ? text.length : afterTags).split(":", 1);
    if (!stream || (tag !== "P" && tag !== "F")) return undefined;
    try {
      return {
        stream,
        timeNs: parseTime(text.toString("latin1", 0, afterTime)),
        endsLine: tag === "F",
        content: afterTags < 0 ? text.subarray(text.length) : text.subarray(afterTags + 1),
      };
    } catch {
      return undefined;
    }
  };
}

/**
 * A position in a container's log: a file, by its id (0n: the first one), and an offset in what it holds uncompressed.
 */
export interface LogPosition {
  fileId: bigint;
  offset: number;
}

/** A line whose end has not been read. */
interface OpenLine {
  timeNs: bigint;
  segments: Buffer[];
  bytes: number;
  /** The line was returned cut; what follows of it is dropped. */
  cut: boolean;
}

/** A position at which no line was open, but for those that had been returned cut. */
interface Anchor extends LogPosition {
  cut: readonly StreamName[];
}

/** The lines of a container's log, from a cursor on. */
export interface CriLines {
  /** Where to read from, so that a line is whole that was open at the cursor. */
  readonly from: LogPosition;
  /** The position after what was taken; before anything was, the cursor's own. */
  readonly here: LogPosition;
  /** Of the last record that was taken; undefined before the first. */
  readonly lastNs: bigint | undefined;
  /**
   * Begins at `here`, since the log no longer has what is before it: lines that are open there lack their beginning.
   */
  skipOpen(): void;
  /**
   * Takes the record between two positions, and returns the line that it completes, unless that is before the cursor.
   */
  take(record: CriRecord, from: LogPosition, to: LogPosition): LogRow | undefined;
  /** Returns the open lines, which a container that has ended will not complete. */
  finish(): LogRow[];
  /** `here`, and what is needed to read on there, as text. */
  cursor(): string;
}

/** The cursor "" or "0" is the beginning. Throws for a malformed one. */
export function createCriLines(cursor: string): CriLines {
  const restored = parseCursor(cursor);
  let { anchor, here } = restored;
  /** Lines returned since the anchor, and how many of the next ones had been before the cursor. */
  let returned = 0;
  let known = restored.returned;
  let lastNs: bigint | undefined;
  const open: Partial<Record<StreamName, OpenLine>> = {};
  for (const stream of anchor.cut) open[stream] = { timeNs: 0n, segments: [], bytes: 0, cut: true };

  function moveAnchor(position: LogPosition): void {
    if (streamNames.some((stream) => open[stream]?.cut === false)) return;
    anchor = { ...position, cut: streamNames.filter((stream) => open[stream]) };
    returned = 0;
  }

  function join({ stream, timeNs, endsLine, content }: CriRecord): LogRow | undefined {
    const line = open[stream];
    if (endsLine) delete open[stream];
    if (line?.cut) return undefined;
    if (!line && endsLine && content.length <= maxLineBytes)
      return { timeNs, stream, log: decodeLine([content], false) };
    const joined: OpenLine = line ?? { timeNs, segments: [], bytes: 0, cut: false };
    // A copy, since the record shares its memory with what was read at once.
    joined.segments.push(Buffer.from(content));
    joined.bytes += content.length;
    if (joined.segments.length > maxSegments) joined.segments = [Buffer.concat(joined.segments)];
    const cut = joined.bytes > maxLineBytes;
    if (!endsLine) open[stream] = joined;
    if (!endsLine && !cut) return undefined;
    const log = decodeLine(joined.segments, cut);
    joined.cut = cut;
    joined.segments = [];
    return { timeNs: joined.timeNs, stream, log };
  }

  return {
    from: anchor,
    get here() {
      return here;
    },
    get lastNs() {
      return lastNs;
    },
    skipOpen() {
      anchor = { ...here, cut: [] };
      known = 0;
      for (const stream of streamNames) delete open[stream];
    },
    take(record, from, to) {
      moveAnchor(from);
      const row = join(record);
      lastNs = record.timeNs;
      here = to;
      if (row) returned += 1;
      const isKnown = row !== undefined && known > 0;
      if (isKnown) known -= 1;
      moveAnchor(to);
      return isKnown ? undefined : row;
    },
    finish() {
      const rows = streamNames.flatMap((stream): LogRow[] => {
        const line = open[stream];
        delete open[stream];
        if (!line || line.cut) return [];
        return [{ timeNs: line.timeNs, stream, log: decodeLine(line.segments, false) }];
      });
      moveAnchor(here);
      return rows;
    },
    cursor() {
      const start = [formatPosition(anchor), ...anchor.cut].join("-");
      const isHere = anchor.fileId === here.fileId && anchor.offset === here.offset;
      return isHere ? start : `${start} ${returned} ${formatPosition(here)}`;
    },
  };
}

// A cursor is a position: "12/34". While a line is open there, it is the position before that line with the streams
// whose line had been cut there, then how many lines were returned since, and the position itself: "12/34-stderr 2
// 12/567".

function formatPosition({ fileId, offset }: LogPosition): string {
  return `${fileId}/${offset}`;
}

function parseCursor(cursor: string): { anchor: Anchor; returned: number; here: LogPosition } {
  const beginning = { fileId: 0n, offset: 0 };
  if (cursor === "" || cursor === "0") return { anchor: { ...beginning, cut: [] }, returned: 0, here: beginning };
  const pattern = /^(\d+)\/(\d+)(-stdout)?(-stderr)?(?: (\d+) (\d+)\/(\d+))?$/;
  const [, fileId, offset, stdout, stderr, returned = "0", hereId = fileId, hereOffset = offset] =
    pattern.exec(cursor) ?? [];
  if (fileId === undefined || hereId === undefined) throw new Error(`not a position in a pod's log: ${cursor}`);
  const cut = streamNames.filter((stream) => (stream === "stdout" ? stdout : stderr));
  return {
    anchor: { fileId: BigInt(fileId), offset: Number(offset), cut },
    returned: Number(returned),
    here: { fileId: BigInt(hereId), offset: Number(hereOffset) },
  };
}
