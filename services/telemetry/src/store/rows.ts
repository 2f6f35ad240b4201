export const streamNames = ["stdout", "stderr"] as const;
export type StreamName = (typeof streamNames)[number];

/** One line of a container's log. Times are nanoseconds since the epoch, as the engine gave them. */
export interface LogRow {
  timeNs: bigint;
  stream: StreamName;
  /** Without its line end. */
  log: string;
}

/** One raw sample of a container's counters. */
export interface MetricRow {
  timeNs: bigint;
  /** Cumulative CPU time. */
  cpuSeconds: number;
  /** The working set. */
  memoryBytes: number;
}

/** Rows carry their place in the sandbox's stream of that kind, from 1, growing in the source's order. */
export type Numbered<R> = R & { sequence: number };

const nsPerSecond = 1_000_000_000n;

/** The last whole microsecond; what indexes hold, since nanoseconds exceed a double's 53 bits. */
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

/** Times before the epoch count as the epoch: no container has rows there. */
export function fromTimestamp(timestamp: { seconds: bigint; nanos: number }): bigint {
  const timeNs = timestamp.seconds * nsPerSecond + BigInt(timestamp.nanos);
  return timeNs < 0n ? 0n : timeNs;
}
