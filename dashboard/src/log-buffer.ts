import type { LogEntry } from "@sandgate/client";

/** A line with its place among all that came, which stays when older ones are dropped. */
export interface LogLine extends LogEntry {
  number: number;
}

/** The newest lines of a log, and which of them a search finds. */
export interface LogBuffer {
  add(entries: readonly LogEntry[]): void;
  /** So many lines came that were not kept. Those before them are dropped, so that no line is missing in between. */
  skip(count: number): void;
  /** Shows lines with this text alone; capital letters don't matter. */
  search(text: string): void;
  readonly shown: readonly LogLine[];
  readonly kept: number;
  /** How many older lines were dropped. */
  readonly dropped: number;
}

/** How many lines are kept at most. The oldest are dropped a tenth at once, so that this costs little for each line. */
const maxLines = 100_000;
const droppedAtOnce = maxLines / 10;

export function createLogBuffer(): LogBuffer {
  let lines: LogLine[] = [];
  let shown: LogLine[] = [];
  let text = "";
  let dropped = 0;
  const isFound = ({ log }: LogEntry) => text === "" || log.toLowerCase().includes(text);
  return {
    add(entries) {
      const added = entries.map((entry, i) => ({ ...entry, number: dropped + lines.length + i }));
      for (const line of added) {
        lines.push(line);
        if (isFound(line)) shown.push(line);
      }
      if (lines.length <= maxLines) return;
      const excess = Math.max(lines.length - maxLines, droppedAtOnce);
      lines = lines.slice(excess);
      dropped += excess;
      const first = shown.findIndex(({ number }) => number >= dropped);
      shown = first < 0 ? [] : shown.slice(first);
    },
    skip(count) {
      dropped += lines.length + count;
      lines = [];
      shown = [];
    },
    search(wanted) {
      text = wanted.toLowerCase();
      shown = lines.filter(isFound);
    },
    get shown() {
      return shown;
    },
    get kept() {
      return lines.length;
    },
    get dropped() {
      return dropped;
    },
  };
}

/** Lines that have come and wait to be shown: the newest, as many as a buffer keeps. */
export function createWaitingLines() {
  let entries: LogEntry[] = [];
  let skipped = 0;
  return {
    push(entry: LogEntry): void {
      entries.push(entry);
      if (entries.length <= maxLines) return;
      entries = entries.slice(droppedAtOnce);
      skipped += droppedAtOnce;
    },
    /** Moves so many lines, the oldest first, to a buffer; returns whether there were any. */
    moveTo(buffer: LogBuffer, count: number): boolean {
      if (entries.length === 0) return false;
      if (skipped > 0) buffer.skip(skipped);
      skipped = 0;
      buffer.add(entries.splice(0, count));
      return true;
    },
  };
}
