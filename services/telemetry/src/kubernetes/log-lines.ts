import { decodeLine } from "../domain/line-text.ts";
import { type LogRow, maxLineBytes } from "../domain/rows.ts";
import { createTimeParser } from "../domain/time-text.ts";

const newline = 0x0a;
const space = 0x20;
/** What a line has beyond this is dropped: its time, and what is kept of it before it is cut. */
const maxKeptBytes = maxLineBytes + 64;

/** The lines of a pod's log as the API server gives them, each with its time, from a cursor on. */
export interface TimedLines {
  /** From when on the log is needed; undefined: from its beginning. */
  readonly since: Date | undefined;
  /** Takes what comes next of the log, and returns the lines that are complete with it and not before the cursor. */
  take(bytes: Buffer): LogRow[];
  /** Takes the end of the log: the last line may lack its line end. */
  finish(): LogRow[];
  /** After what was returned. */
  cursor(): string;
}

const secondNs = 1_000_000_000n;

/**
 * The cursor is "<ns>/<number>": the latest time of a line that was returned, and how many were of its second and the
 * one before. The API server reads a log from a whole second on, leaving out each earlier line, so as many come again
 * and are dropped; unless one is later than that time, when the log no longer has those. Lines of the two streams may
 * be out of the order of their times by less than a second. The server doesn't say which stream a line is of. The
 * cursor "" or "0" is the beginning. Throws for a malformed one.
 */
export function createTimedLines(cursor: string): TimedLines {
  const parseTime = createTimeParser();
  const known = parseCursor(cursor);
  let toDrop = known.number;
  /** The latest time so far, and the numbers of lines in its second and the one before. */
  let lastNs = 0n;
  let inLastSecond = 0;
  let inSecondBefore = 0;
  let pieces: Buffer[] = [];
  let keptBytes = 0;

  function count(timeNs: bigint): void {
    const seconds = timeNs / secondNs - lastNs / secondNs;
    if (seconds > 0n) {
      inSecondBefore = seconds === 1n ? inLastSecond : 0;
      inLastSecond = 0;
    }
    if (seconds >= 0n) inLastSecond += 1;
    else if (seconds === -1n) inSecondBefore += 1;
    if (timeNs > lastNs) lastNs = timeNs;
  }

  function keep(piece: Buffer): void {
    const kept = piece.subarray(0, maxKeptBytes - keptBytes);
    // A copy, since the piece shares its memory with a whole chunk of the connection.
    if (kept.length > 0) pieces.push(Buffer.from(kept));
    keptBytes += kept.length;
  }

  function* takeLine(): Generator<LogRow> {
    const line = pieces.length === 1 && pieces[0] ? pieces[0] : Buffer.concat(pieces);
    pieces = [];
    keptBytes = 0;
    const afterTime = line.indexOf(space);
    const timeNs = readTime(line.toString("latin1", 0, Math.max(afterTime, 0)));
    // A kubelet's own words, such as that it has no log of this container.
    if (timeNs === undefined) return;
    count(timeNs);
    if (timeNs > known.lastNs) toDrop = 0;
    if (toDrop > 0) {
      toDrop -= 1;
      return;
    }
    const content = line.subarray(afterTime + 1);
    yield { timeNs, stream: "stdout", log: decodeLine([content], content.length > maxLineBytes) };
  }

  function readTime(text: string): bigint | undefined {
    try {
      return parseTime(text);
    } catch {
      return undefined;
    }
  }

  return {
    since: known.lastNs === 0n ? undefined : new Date(Number(known.lastNs / secondNs - 1n) * 1_000),
    take(bytes) {
      const rows: LogRow[] = [];
      let start = 0;
      for (let end = bytes.indexOf(newline); end >= 0; end = bytes.indexOf(newline, start)) {
        keep(bytes.subarray(start, end));
        rows.push(...takeLine());
        start = end + 1;
      }
      keep(bytes.subarray(start));
      return rows;
    },
    finish: () => (keptBytes === 0 ? [] : [...takeLine()]),
    cursor: () => (lastNs === 0n ? cursor || "0" : `${lastNs}/${inLastSecond + inSecondBefore}`),
  };
}

function parseCursor(cursor: string): { lastNs: bigint; number: number } {
  if (cursor === "" || cursor === "0") return { lastNs: 0n, number: 0 };
  const [, ns, number] = /^(\d{1,20})\/(\d{1,15})$/.exec(cursor) ?? [];
  if (ns === undefined) throw new Error(`not a position in a pod's log as the API server gives it: ${cursor}`);
  return { lastNs: BigInt(ns), number: Number(number) };
}
