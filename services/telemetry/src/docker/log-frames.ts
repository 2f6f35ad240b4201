import type { StreamName } from "../domain/rows.ts";
import { createTimeParser } from "../domain/time-text.ts";

/** One message of the engine's log: a line with its line end, or a segment of a long line without one. */
export interface LogFrame {
  stream: StreamName;
  /** When the engine received it. All segments of a line have the time of the first. */
  timeNs: bigint;
  payload: Buffer;
}

const headerBytes = 8;

/**
 * Parses the engine's multiplexed stream (Engine API, ContainerAttach: stream type u8, three zero bytes, length u32
 * big-endian, payload), whose payloads start with a time and a space. Bytes of an incomplete frame are kept for the
 * next call.
 */
export function createFrameParser(): (bytes: Buffer) => LogFrame[] {
  const parseTime = createTimeParser();
  let incomplete: Buffer = Buffer.alloc(0);
  return (bytes) => {
    const buffer = incomplete.length === 0 ? bytes : Buffer.concat([incomplete, bytes]);
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
    incomplete = buffer.subarray(at);
    return frames;
  };
}
