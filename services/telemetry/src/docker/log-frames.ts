import { createFrameSplitter } from "@sandgate/kit/base/streams";
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
 * next call. Throws, after the frames before it, for what the engine sends in place of lines that it can't read (type 3,
 * with the status 200).
 */
export function createFrameParser(): (bytes: Buffer) => Iterable<LogFrame> {
  const parseTime = createTimeParser();
  const split = createFrameSplitter(headerBytes);
  return function* parse(bytes) {
    for (const frame of split(bytes)) {
      const type = frame.readUInt8(0);
      if (type === 3) throw new Error(`the engine can't read the log: ${frame.toString("utf8", headerBytes).trim()}`);
      const space = frame.indexOf(0x20, headerBytes);
      if ((type !== 1 && type !== 2) || space < 0) continue;
      yield {
        stream: type === 1 ? "stdout" : "stderr",
        timeNs: parseTime(frame.toString("latin1", headerBytes, space)),
        payload: frame.subarray(space + 1),
      };
    }
  };
}
