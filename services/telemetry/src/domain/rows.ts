import { mebibyte } from "@sandgate/kit/base/sizes";

export const streamNames = ["stdout", "stderr"] as const;
export type StreamName = (typeof streamNames)[number];

// Times of rows are nanoseconds since the epoch in a bigint (`…Ns`), as the engine gives them: a Date has milliseconds.
// Indexes hold whole microseconds in a number (`…Us`). All other times of this service are Dates.

/** One line of a container's log. */
export interface LogRow {
  timeNs: bigint;
  stream: StreamName;
  /** Without its line end. */
  log: string;
}

/** The most bytes of a line in UTF-8. */
export const maxLineBytes = 64 * 1024;
/** The most bytes of the lines that are stored at once. */
export const maxBatchBytes = mebibyte;

/** One sample of a container's counters. */
export interface MetricRow {
  timeNs: bigint;
  /** Cumulative CPU time. */
  cpuSeconds: number;
  /** The working set. */
  memoryBytes: number;
}

/** Rows of one kind are numbered within their sandbox, from 1, in the order they were stored. */
export type Numbered<R> = R & { sequence: number };

const nsPerSecond = 1_000_000_000n;

/** The last whole microsecond. Nanoseconds exceed a double's 53 bits. */
export function toMicros(timeNs: bigint): number {
  return Number(timeNs / 1000n);
}

export function fromMillis(ms: number): bigint {
  return BigInt(ms) * 1_000_000n;
}

/** A protobuf Timestamp's fields. */
export function toTimestamp(timeNs: bigint): { seconds: bigint; nanos: number } {
  return { seconds: timeNs / nsPerSecond, nanos: Number(timeNs % nsPerSecond) };
}

/** A time before the epoch counts as the epoch, since no container has earlier rows. */
export function fromTimestamp(timestamp: { seconds: bigint; nanos: number }): bigint {
  const timeNs = timestamp.seconds * nsPerSecond + BigInt(timestamp.nanos);
  return timeNs < 0n ? 0n : timeNs;
}
