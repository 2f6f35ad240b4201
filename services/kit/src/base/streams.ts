import { mebibyte } from "./sizes.ts";

/** What is longer comes from no container engine and no API server; it would only fill the memory. */
const maxBytes = 16 * mebibyte;

/**
 * The lines of a text in UTF-8, whatever its chunks, the last one with or without a line end. Throws for one over 16
 * MiB.
 */
export async function* readLines(chunks: AsyncIterable<Uint8Array | string>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let line = "";
  for await (const chunk of chunks) {
    const text = typeof chunk === "string" ? chunk : decoder.decode(chunk, { stream: true });
    // The new text alone is searched, so that a long line takes linear time.
    const [end = "", ...next] = text.split("\n");
    line += end;
    if (line.length > maxBytes) throw new Error(`a line has more than ${maxBytes} bytes`);
    for (const each of next) {
      yield line;
      line = each;
    }
  }
  line += decoder.decode();
  if (line !== "") yield line;
}

/**
 * Makes what splits a stream of frames, each of which begins with a head that ends in the length of the rest (u32,
 * big-endian). It takes the next chunk and returns the frames that are complete with it, heads included. Throws what
 * `toError` makes of its message for a frame over `maxFrameBytes`, 16 MiB unless set.
 */
export function createFrameSplitter(
  headBytes: number,
  maxFrameBytes = maxBytes,
  toError = (message: string) => new Error(message),
): (chunk: Buffer) => Buffer[] {
  let chunks: Buffer[] = [];
  let bytes = 0;
  let needed = headBytes;
  return (chunk) => {
    chunks.push(chunk);
    bytes += chunk.length;
    // Chunks are joined when they make a frame, not each with what there was: a long frame takes linear time.
    if (bytes < needed) return [];
    const buffer = chunks.length === 1 ? chunk : Buffer.concat(chunks, bytes);
    const frames: Buffer[] = [];
    for (let at = 0; ; at += needed) {
      needed = headBytes;
      const left = buffer.subarray(at);
      if (left.length >= needed) needed += left.readUInt32BE(headBytes - 4);
      if (needed > maxFrameBytes) throw toError(`a frame has more than ${maxFrameBytes} bytes`);
      if (left.length >= needed) {
        frames.push(left.subarray(0, needed));
        continue;
      }
      chunks = [left];
      bytes = left.length;
      return frames;
    }
  };
}
