import type { Duplex } from "node:stream";
import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import type { WebSocket } from "ws";
import { untilPassedOn } from "./until-passed-on.ts";

/** What may be on its way to a client before no more is read from the server. */
const maxWaitingBytes = 256 * 1024;

/**
 * Passes the bytes of binary frames on to a stream, and those of the stream back, until it ends. Throws what the stream
 * fails with, and VALIDATION_ERROR for another frame. The stream is cut when the signal aborts with a reason of ours.
 */
export function joinWebSocket(socket: WebSocket, stream: Duplex, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = untilPassedOn(signal);
    const cut = () => stream.destroy(end.reason instanceof DomainError ? end.reason : undefined);
    end.addEventListener("abort", cut);
    if (end.aborted) cut();
    stream.on("data", (chunk: Buffer) => {
      socket.send(chunk, () => stream.resume());
      if (socket.bufferedAmount > maxWaitingBytes) stream.pause();
    });
    stream.once("error", reject);
    stream.once("close", () => {
      end.removeEventListener("abort", cut);
      resolve();
    });
    socket.on("message", (data, isBinary) => {
      if (!isBinary) return stream.destroy(invalid("frame", "must be binary"));
      const bytes = Buffer.isBuffer(data) ? data : Buffer.concat([data].flat().map(toBuffer));
      // A stream keeps what has no bytes too, and never calls that much.
      if (bytes.length === 0 || stream.write(bytes) || socket.isPaused) return;
      socket.pause();
      stream.once("drain", () => socket.resume());
    });
    socket.once("close", () => stream.end());
  });
}

function toBuffer(data: Buffer | ArrayBuffer): Buffer {
  return Buffer.isBuffer(data) ? data : Buffer.from(data);
}
