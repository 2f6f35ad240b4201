import type { StreamName } from "../store/rows.ts";

/** One message of the engine's log: a line with its line end, or a part of a long line without. */
export interface LogFrame {
  stream: StreamName;
  /** When the engine got it; the parts of one line share the first one's. */
  timeNs: bigint;
  payload: Buffer;
}

const headerBytes = 8;

/**
 * Takes apart the engine's multiplexed stream (Engine API, ContainerAttach: stream type u8, three zero bytes, length u32
 * big-endian, payload), whose payloads start with a time and a space. Bytes of an unfinished frame wait for the next call.
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

/** Reads RFC 3339 times to the nanosecond. Most frames are of the same second as the one before. */
export function createTimeParser(): (text: string) => bigint {
  let knownSecond = "";
  let knownNs = 0n;
  return (text) => {
    const second = text.slice(0, 19);
    const [, fraction = "", zone = "Z"] = /^(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)$/.exec(text.slice(19)) ?? [];
    const key = second + zone;
    if (key !== knownSecond) {
      const ms = Date.parse(key);
      if (Number.isNaN(ms)) throw new Error(`The engine gave a time that is none: ${text}`);
      knownSecond = key;
      knownNs = BigInt(ms) * 1_000_000n;
    }
    return knownNs + BigInt(fraction.padEnd(9, "0"));
  };
}
