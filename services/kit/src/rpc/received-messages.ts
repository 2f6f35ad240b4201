import { type DescMessage, fromBinary, type MessageShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { endStreamFlag, endStreamFromJson } from "@connectrpc/connect/protocol-connect";
import { createFrameSplitter } from "../base/streams.ts";
import { limitFields, type MessageLimits } from "./message-limits.ts";

/** The flags and the length in front of each message of a stream. */
export const prefixBytes = 5;
const compressedFlag = 1;
/** How a stream ends that has nothing more to tell. */
const emptyEnd = Buffer.from("{}");

/**
 * Reads the messages of a body that Connect streams, to its end. Throws RESOURCE_EXHAUSTED for one that is larger than
 * `maxBytes` or beyond the limits, and the error with which the stream ends.
 */
export async function* readMessages<D extends DescMessage>(
  desc: D,
  body: AsyncIterable<Uint8Array>,
  o: { maxBytes: number; limits: MessageLimits | undefined; headers: Headers; trailers: Headers },
): AsyncGenerator<MessageShape<D>> {
  const { limits } = o;
  // Of a message that is kept, unknown fields would keep all its bytes.
  const options = { readUnknownFields: !limits };
  const split = createFrameSplitter(
    prefixBytes,
    prefixBytes + (limits?.maxBytes ?? o.maxBytes),
    (message) => new ConnectError(message, Code.ResourceExhausted),
  );
  let hasEnded = false;
  for await (const part of body) {
    for (const frame of split(Buffer.from(part.buffer, part.byteOffset, part.length))) {
      if (hasEnded) throw new ConnectError("a message came after the stream's end", Code.Internal);
      const flags = frame.readUInt8();
      if ((flags & compressedFlag) !== 0) {
        throw new ConnectError("the server compressed a message, which it wasn't asked for", Code.Internal);
      }
      // A copy, since a message that is kept would keep all that came with it.
      const bytes = new Uint8Array(frame.subarray(prefixBytes));
      if ((flags & endStreamFlag) === 0) {
        if (limits) limitFields(desc, limits, [bytes]);
        yield fromBinary(desc, bytes, options);
        continue;
      }
      hasEnded = true;
      // Connect makes an error, which takes long, before it reads any end.
      if (emptyEnd.equals(bytes)) continue;
      const { error, metadata } = endStreamFromJson(bytes);
      if (error) {
        for (const [name, value] of o.headers) error.metadata.append(name, value);
        throw error;
      }
      for (const [name, value] of metadata) o.trailers.set(name, value);
    }
  }
  if (!hasEnded) throw new ConnectError("the stream broke off before its end", Code.Internal);
}
