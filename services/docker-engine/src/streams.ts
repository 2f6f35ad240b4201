import { mebibyte } from "@sandgate/kit/base/sizes";
import { readLines } from "@sandgate/kit/base/streams";

/** What is longer comes from no engine; it would only fill the memory. */
const maxObjectBytes = 16 * mebibyte;
const [quote, backslash, opening, closing] = ['"', "\\", "{", "}"].map((each) => each.charCodeAt(0));

/** Values of a stream of JSON, one on each line, whatever the chunks they come in. */
export async function* readJsonLines(stream: NodeJS.ReadableStream): AsyncGenerator<unknown> {
  for await (const line of readLines(stream)) if (line.trim() !== "") yield JSON.parse(line);
}

/** The objects of a list in JSON, whatever the chunks it comes in, one at a time. Throws for one over 16 MiB. */
export async function* readJsonList<T>(stream: AsyncIterable<Buffer>): AsyncGenerator<T> {
  const splitObjects = createObjectSplitter();
  for await (const chunk of stream) {
    for (const object of splitObjects(chunk)) {
      const value: T = JSON.parse(object.toString());
      yield value;
    }
  }
}

/** Makes what takes the next chunk of a list and returns the objects that are complete with it. */
function createObjectSplitter(): (chunk: Buffer) => Buffer[] {
  let parts: Buffer[] = [];
  let bytes = 0;
  let depth = 0;
  let isInString = false;
  let isEscaped = false;
  return (chunk) => {
    const objects: Buffer[] = [];
    let from = 0;
    for (let at = 0; at < chunk.length; at++) {
      const byte = chunk[at];
      if (isEscaped) isEscaped = false;
      else if (byte === quote) isInString = !isInString;
      else if (isInString) isEscaped = byte === backslash;
      else if (byte === opening && depth++ === 0) from = at;
      else if (byte === closing && --depth === 0) {
        objects.push(Buffer.concat([...parts, chunk.subarray(from, at + 1)]));
        parts = [];
        bytes = 0;
      }
    }
    if (depth > 0) parts.push(chunk.subarray(from));
    if (depth > 0) bytes += chunk.length - from;
    if (bytes > maxObjectBytes) throw new Error(`an object has more than ${maxObjectBytes} bytes`);
    return objects;
  };
}

/** A failure that the engine reports in a stream, after it has answered 200. */
class ProgressFailure extends Error {
  override readonly name = "ProgressFailure";
  readonly statusCode = 500;
}

/** Reads the progress of a pull or a build to its end. Throws a ProgressFailure when that is a failure. */
export async function finishProgress(progress: NodeJS.ReadableStream): Promise<void> {
  for await (const message of readJsonLines(progress)) {
    if (typeof message === "object" && message !== null && "error" in message) {
      throw new ProgressFailure(String(message.error));
    }
  }
}
