import type { Duplex } from "node:stream";
import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import type { WebSocket } from "ws";

/** What may be on its way to a client before no more is read from the server. */
const maxWaitingBytes = 256 * 1024;
/** How long what a client sent last may take to reach the server once the client has left. */
const endMs = 5_000;

/**
 * Passes the bytes of binary frames on to a stream, and those of the stream back, until it ends. Throws what the stream
 * fails with, and VALIDATION_ERROR for another frame. The stream is cut when the signal aborts with a reason of ours.
 */
export function joinWebSocket(socket: WebSocket, stream: Duplex, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const cut = () => {
      if (signal.reason instanceof DomainError) stream.destroy(signal.reason);
    };
    signal.addEventListener("abort", cut);
    if (signal.aborted) cut();
    stream.on("data", (chunk: Buffer) => {
      socket.send(chunk, () => stream.resume());
      if (socket.bufferedAmount > maxWaitingBytes) stream.pause();
    });
    stream.once("error", reject);
    stream.once("close", () => {
      signal.removeEventListener("abort", cut);
      resolve();
    });
    socket.on("message", (data, isBinary) => {
      if (!isBinary) return stream.destroy(invalid("frame", "must be binary"));
      const isTaken = stream.write(Buffer.isBuffer(data) ? data : Buffer.concat([data].flat().map(toBuffer)));
      if (isTaken) return;
      socket.pause();
      stream.once("drain", () => socket.resume());
    });
    socket.once("close", () => {
      stream.end();
      const late = setTimeout(() => stream.destroy(), endMs);
      stream.once("close", () => clearTimeout(late));
    });
  });
}

function toBuffer(data: Buffer | ArrayBuffer): Buffer {
  return Buffer.isBuffer(data) ? data : Buffer.from(data);
}
