import type { Duplex } from "node:stream";
import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import type { WebSocket } from "ws";
import { JoinedBytes } from "../limits/joined-bytes.ts";
import { frameBytes } from "../live/web-sockets.ts";
import { untilPassedOn } from "./until-passed-on.ts";

/** What may be on its way to a client before no more is read from the server, and the other way round. */
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
    let unsent = 0;
    stream.on("data", (chunk: Buffer) => {
      const bytes = chunk.length + frameBytes;
      unsent += bytes;
      if (unsent > maxWaitingBytes) stream.pause();
      socket.send(chunk, () => {
        unsent -= bytes;
        if (unsent <= maxWaitingBytes) stream.resume();
      });
    });
    stream.once("error", reject);
    stream.once("close", () => {
      end.removeEventListener("abort", cut);
      resolve();
    });
    // One write at a time: what comes meanwhile is joined.
    const waiting = new JoinedBytes();
    let isWriting = false;
    let isLast = false;
    const write = () => {
      if (isWriting) return;
      if (waiting.length > 0) {
        isWriting = true;
        stream.write(waiting.take(), () => {
          isWriting = false;
          write();
        });
        if (socket.isPaused) socket.resume();
      } else if (isLast) {
        stream.end();
      }
    };
    socket.on("message", (data, isBinary) => {
      if (!isBinary) return stream.destroy(invalid("frame", "must be binary"));
      for (const part of [data].flat()) waiting.add(toBuffer(part));
      write();
      if (waiting.length > maxWaitingBytes) socket.pause();
    });
    socket.once("close", () => {
      isLast = true;
      write();
    });
  });
}

function toBuffer(data: Buffer | ArrayBuffer): Buffer {
  return Buffer.isBuffer(data) ? data : Buffer.from(data);
}
