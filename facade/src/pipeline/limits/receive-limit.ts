import type { IncomingMessage, Server } from "node:http";
import type { Socket } from "node:net";

const timers = new WeakMap<IncomingMessage, NodeJS.Timeout>();

/**
 * Limits how long a client may take to send a request's body. Node's own limit would hold for every route. `onLate`
 * answers one that has none yet; otherwise its connection is cut.
 */
export function limitReceiving(
  server: Server,
  { ms, onLate }: { ms: number; onLate(error: NodeJS.ErrnoException, socket: Socket): void },
): void {
  server.on("request", (request, response) => {
    const { "content-length": length, "transfer-encoding": encoding } = request.headers;
    if (encoding === undefined && !(Number(length) > 0)) return;
    const timer = setTimeout(() => {
      if (request.complete) return;
      if (response.headersSent) request.destroy();
      else onLate(new Error("the request did not come in time"), request.socket);
    }, ms);
    timers.set(request, timer);
    const stop = () => clearTimeout(timer);
    request.once("end", stop);
    request.once("close", stop);
  });
}

/** From now on the request may take any time. */
export function receiveWithoutLimit(request: IncomingMessage): void {
  clearTimeout(timers.get(request));
}
