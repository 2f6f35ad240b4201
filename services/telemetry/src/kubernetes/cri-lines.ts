import { decodeLine } from "../domain/line-text.ts";
import { type LogRow, maxLineBytes, type StreamName, streamNames } from "../domain/rows.ts";
import { createTimeParser } from "../domain/time-text.ts";

/** A record of a log file in the format of the Container Runtime Interface: a line, or a part of a long one. */
export interface CriRecord {
  stream: StreamName;
  timeNs: bigint;
  /** Whether the line ends with it. */
  ends: boolean;
  content: Buffer;
}

const space = 0x20;
/** A runtime may write each byte of a line as a part of its own, and each part kept costs a hundred bytes or more. */
const maxParts = 64;

/** Parses `<RFC 3339 time> stdout|stderr P|F <content>`; tags may follow the P (part) or F (full), after a colon. */
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
        ends: tag === "F",
        content: afterTags < 0 ? text.subarray(text.length) : text.subarray(afterTags + 1),
      };
    } catch {
      return undefined;
    }
  };
}

/** A place in a container's log: a file, by its id (0n: the first one), and an offset in what it holds uncompressed. */
export interface Place {
  fileId: bigint;
  offset: number;
}

/** A line whose end has not been read. */
interface OpenLine {
  timeNs: bigint;
  parts: Buffer[];
  bytes: number;
  /** It was returned cut; the rest is dropped. */
  cut: boolean;
}

/** A place at which no line was open, but for those that had been returned cut. */
interface Anchor extends Place {
  cut: readonly StreamName[];
}

/** The lines of a container's log, from a cursor on. */
export interface CriLines {
  /** Where to read from, so that a line is whole that was open at the cursor. */
  readonly from: Place;
  /** The place after what was taken, or the cursor's own before anything was. */
  readonly here: Place;
  /** Of the last record that was taken; undefined before the first. */
  readonly lastNs: bigint | undefined;
  /** Reading begins at `here`, since the log no longer has the place before: lines that are open there lack their beginning. */
  skipOpen(): void;
  /** Takes the record between two places, and returns the line that it completes, unless that is before the cursor. */
  take(record: CriRecord, from: Place, to: Place): LogRow | undefined;
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
  for (const stream of anchor.cut) open[stream] = { timeNs: 0n, parts: [], bytes: 0, cut: true };

  function moveAnchor(place: Place): void {
    if (streamNames.some((stream) => open[stream]?.cut === false)) return;
    anchor = { ...place, cut: streamNames.filter((stream) => open[stream]) };
    returned = 0;
  }

  function join({ stream, timeNs, ends, content }: CriRecord): LogRow | undefined {
    const line = open[stream];
    if (ends) delete open[stream];
    if (line?.cut) return undefined;
    if (!line && ends && content.length <= maxLineBytes) return { timeNs, stream, log: decodeLine([content], false) };
    const joined: OpenLine = line ?? { timeNs, parts: [], bytes: 0, cut: false };
    // A copy, since the record shares its memory with what was read at once.
    joined.parts.push(Buffer.from(content));
    joined.bytes += content.length;
    if (joined.parts.length > maxParts) joined.parts = [Buffer.concat(joined.parts)];
    const cut = joined.bytes > maxLineBytes;
    if (!ends) open[stream] = joined;
    if (!ends && !cut) return undefined;
    const log = decodeLine(joined.parts, cut);
    joined.cut = cut;
    joined.parts = [];
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
        return [{ timeNs: line.timeNs, stream, log: decodeLine(line.parts, false) }];
      });
      moveAnchor(here);
      return rows;
    },
    cursor() {
      const start = [formatPlace(anchor), ...anchor.cut].join("-");
      const isHere = anchor.fileId === here.fileId && anchor.offset === here.offset;
      return isHere ? start : `${start} ${returned} ${formatPlace(here)}`;
    },
  };
}

// A cursor is the place where it is. While a line is open there, it is the place before that line, with the streams whose line
// had been cut there, then how many lines were returned since, and the place where it is: "12/34", "12/34-stderr 2 12/567".

function formatPlace({ fileId, offset }: Place): string {
  return `${fileId}/${offset}`;
}

function parseCursor(cursor: string): { anchor: Anchor; returned: number; here: Place } {
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
