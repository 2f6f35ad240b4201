import type { LogEntry } from "@sandgate/client";

/** A line with its place among all that came, which stays when older ones are dropped. */
export interface LogLine extends LogEntry {
  number: number;
}

/** The newest lines of a log, and which of them a search finds. */
export interface LogBuffer {
  add(entries: readonly LogEntry[]): void;
  /** Shows lines with this text alone; capital letters don't matter. */
  search(text: string): void;
  readonly shown: readonly LogLine[];
  readonly kept: number;
  /** How many older lines were dropped. */
  readonly dropped: number;
}

/** Keeps so many lines at most. The oldest are dropped a tenth at once, so that this costs little for each line. */
export function createLogBuffer(maxLines = 100_000): LogBuffer {
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
      const excess = Math.max(lines.length - maxLines, Math.ceil(maxLines / 10));
      lines = lines.slice(excess);
      dropped += excess;
      const first = shown.findIndex(({ number }) => number >= dropped);
      shown = first < 0 ? [] : shown.slice(first);
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
