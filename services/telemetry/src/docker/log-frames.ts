import type { StreamName } from "../store/rows.ts";

/** One message of the engine's log: a line with its line end, or a part of a long line without one. */
export interface LogFrame {
  stream: StreamName;
  /** When the engine received it. All parts of a line have the time of the first. */
  timeNs: bigint;
  payload: Buffer;
}

const headerBytes = 8;

/**
 * Parses the engine's multiplexed stream (Engine API, ContainerAttach: stream type u8, three zero bytes, length u32
 * big-endian, payload), whose payloads start with a time and a space. Bytes of an incomplete frame are kept for the next call.
 */
export function createFrameParser(): (bytes: Buffer) => LogFrame[] {
  const parseTime = createTimeParser();
  let rest: Buffer = Buffer.alloc(0);
  return (bytes) => {
    const buffer = rest.length === 0 ? bytes : Buffer.concat([rest, bytes]);
    const frames: LogFrame[] = [];
    let at = 0;
    while (buffer.length - at >= headerBytes) {
      const end = at + headerBytes + buffer.readUInt32BE(at + 4);
      if (end > buffer.length) break;
      const type = buffer.readUInt8(at);
      const start = at + headerBytes;
      const space = buffer.indexOf(0x20, start);
      at = end;
      if ((type !== 1 && type !== 2) || space < 0 || space >= end) continue;
      frames.push({
        stream: type === 1 ? "stdout" : "stderr",
        timeNs: parseTime(buffer.toString("latin1", start, space)),
        payload: buffer.subarray(space + 1, end),
      });
    }
    rest = buffer.subarray(at);
    return frames;
  };
}

/** Parses RFC 3339 times to the nanosecond. It remembers the last second, since most frames are of the same one. */
export function createTimeParser(): (text: string) => bigint {
  let knownSecond = "";
  let knownNs = 0n;
  return (text) => {
    const second = text.slice(0, 19);
    const [, fraction = "", zone = "Z"] = /^(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)$/.exec(text.slice(19)) ?? [];
    const key = second + zone;
    if (key !== knownSecond) {
      const ms = Date.parse(key);
      if (Number.isNaN(ms)) throw new Error(`not a time of the engine: ${text}`);
      knownSecond = key;
      knownNs = BigInt(ms) * 1_000_000n;
    }
    return knownNs + BigInt(fraction.padEnd(9, "0"));
  };
}
