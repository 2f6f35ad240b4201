import { Code, ConnectError } from "@connectrpc/connect";
import { createJsonBound, tooManyValues } from "../../pipeline/validation/json-bounds.ts";

/** A byte of flags, and four of the length. */
const headerBytes = 5;

/** Passes the body of a unary call on. Throws at a message of too many values. */
export async function* boundMessage(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const isWithin = createJsonBound();
  for await (const chunk of chunks) {
    if (!isWithin(chunk)) throw tooLarge();
    yield chunk;
  }
}

/** Passes the body of a streaming call on. Throws at a message of too many values. */
export async function* boundMessages(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const header = Buffer.alloc(headerBytes);
  let headerFilled = 0;
  let messageLeft = 0;
  let isWithin = createJsonBound();
  for await (const chunk of chunks) {
    for (let at = 0; at < chunk.length; ) {
      if (messageLeft > 0) {
        const part = chunk.subarray(at, at + messageLeft);
        if (!isWithin(part)) throw tooLarge();
        messageLeft -= part.length;
        at += part.length;
        continue;
      }
      header[headerFilled] = chunk[at] ?? 0;
      at += 1;
      headerFilled = (headerFilled + 1) % headerBytes;
      if (headerFilled > 0) continue;
      messageLeft = header.readUInt32BE(1);
      isWithin = createJsonBound();
    }
    yield chunk;
  }
}

function tooLarge(): ConnectError {
  return new ConnectError(`The message ${tooManyValues}.`, Code.InvalidArgument);
}
