import { type DescMessage, fromBinary, type MessageShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { endStreamFlag, endStreamFromJson } from "@connectrpc/connect/protocol-connect";
import { limitFields, type MessageLimits } from "./message-limits.ts";

/** The flags and the length in front of each message. */
const prefixBytes = 5;
const compressedFlag = 1;
/** Of an end that is an object without fields. */
const emptyEndBytes = 2;

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
  const received = new ReceivedBytes();
  let prefix: { flags: number; length: number } | undefined;
  let hasEnded = false;
  for await (const part of body) {
    received.add(part);
    for (;;) {
      prefix ??= takePrefix(received, limits?.maxBytes ?? o.maxBytes);
      if (!prefix || received.length < prefix.length) break;
      const { flags, length } = prefix;
      prefix = undefined;
      const bytes = received.take(length);
      if (hasEnded) throw new ConnectError("a message came after the stream's end", Code.Internal);
      if ((flags & endStreamFlag) === 0) {
        if (limits) limitFields(desc, limits, [bytes]);
        yield fromBinary(desc, bytes, options);
        continue;
      }
      hasEnded = true;
      // Mostly it has nothing to tell, and what reads it begins with an error of its own, which takes long to make.
      if (length === emptyEndBytes) continue;
      const { error, metadata } = endStreamFromJson(bytes);
      if (error) {
        for (const [name, value] of o.headers) error.metadata.append(name, value);
        throw error;
      }
      for (const [name, value] of metadata) o.trailers.set(name, value);
    }
  }
  if (!hasEnded) throw new ConnectError("the stream broke off", Code.Internal);
}

function takePrefix(received: ReceivedBytes, maxBytes: number): { flags: number; length: number } | undefined {
  if (received.length < prefixBytes) return undefined;
  const prefix = new DataView(received.take(prefixBytes).buffer);
  const [flags, length] = [prefix.getUint8(0), prefix.getUint32(1)];
  if (length > maxBytes) {
    throw new ConnectError(`a message of ${length} bytes is larger than ${maxBytes}`, Code.ResourceExhausted);
  }
  if ((flags & compressedFlag) !== 0) throw new ConnectError("a message is compressed, unasked", Code.Internal);
  return { flags, length };
}

/** Bytes that are taken in other parts than they came in. */
class ReceivedBytes {
  length = 0;
  readonly #parts: Uint8Array[] = [];

  add(part: Uint8Array): void {
    this.#parts.push(part);
    this.length += part.length;
  }

  /** Copies the first so many bytes, which must have come. Those that are kept keep nothing else. */
  take(length: number): Uint8Array<ArrayBuffer> {
    const taken = new Uint8Array(length);
    for (let at = 0; at < length; ) {
      const part = this.#parts.shift() ?? new Uint8Array();
      const some = part.subarray(0, length - at);
      taken.set(some, at);
      at += some.length;
      if (some.length < part.length) this.#parts.unshift(part.subarray(some.length));
    }
    this.length -= length;
    return taken;
  }
}
