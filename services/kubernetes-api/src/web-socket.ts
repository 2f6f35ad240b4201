import { once } from "node:events";
import type { IncomingHttpHeaders, IncomingMessage, RequestOptions } from "node:http";
import { buffer } from "node:stream/consumers";
import { mebibyte } from "@sandgate/kit/base/sizes";
import WebSocket from "ws";

/** Of one message; an API server's are 32 KiB. */
const maxMessageBytes = mebibyte;
/** How long a connection that nothing goes over is not asked whether the other end is there. */
const keepAliveMs = 30_000;

/** Instead of a WebSocket. */
export interface RefusedSocket {
  statusCode: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

/**
 * Opens a WebSocket, which is paused until its reader listens. Throws the signal's reason, or what kept it from being
 * opened.
 */
export async function openWebSocket(
  url: URL,
  protocols: readonly string[],
  o: { tls: RequestOptions; signal: AbortSignal; timeoutMs: number },
): Promise<{ socket: WebSocket } | { refused: RefusedSocket }> {
  o.signal.throwIfAborted();
  const socket = new WebSocket(url, [...protocols], {
    ...o.tls,
    perMessageDeflate: false,
    maxPayload: maxMessageBytes,
    handshakeTimeout: o.timeoutMs,
  });
  const abort = () => socket.terminate();
  o.signal.addEventListener("abort", abort, { once: true });
  const refusal = Promise.withResolvers<{ refused: RefusedSocket }>();
  socket.once("upgrade", (answer: IncomingMessage) => answer.socket.setKeepAlive(true, keepAliveMs));
  socket.once("open", () => socket.pause());
  socket.once("unexpected-response", (_request, answer: IncomingMessage) => {
    const { statusCode = 0, headers } = answer;
    buffer(answer).then((body) => refusal.resolve({ refused: { statusCode, headers, body } }), refusal.reject);
  });
  try {
    const opened = once(socket, "open").then(() => ({ socket }));
    const outcome = await Promise.race([opened, refusal.promise]);
    // Its end is an error to whoever waits for it to open.
    if ("refused" in outcome) opened.catch(() => {});
    return outcome;
  } catch (error) {
    if (o.signal.aborted) throw o.signal.reason;
    throw error;
  } finally {
    o.signal.removeEventListener("abort", abort);
  }
}
