import type { Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { breakOff } from "./bodies.ts";

/**
 * How long idle connections stay open where other replicas serve beside this one: most clients send a request within
 * this time, and learn from its response that they should connect again.
 */
export const closingIdleMs = 3_000;

/** How often idle connections are closed during a shutdown. */
const sweepMs = 100;
/** How long a client that has just connected may take to send its first request during a shutdown. */
const firstRequestMs = 2_000;
/**
 * How long a client may take to finish sending a request and to read the response. After that its connection is cut.
 */
const lastResponseMs = 30_000;

export interface ShutdownLimits {
  /** How long an idle connection stays open. Its client learns from one more response that it should connect again. */
  idleMs: number;
  firstRequestMs: number;
  lastResponseMs: number;
}

/**
 * Tracks a server's connections, and returns a function that closes it by `close`, which waits for all of them. It cuts
 * off no request or response, and waits for no slow client forever. Node by itself treats a connection as idle while
 * bytes of its last response are unsent, and waits indefinitely for one that never sends a complete request. Idle
 * connections are closed at once, unless `idleMs` is given.
 */
export function createGracefulShutdown(
  server: Server,
  close: () => Promise<unknown>,
  given: Partial<ShutdownLimits> = {},
): () => Promise<void> {
  const limits: ShutdownLimits = { idleMs: 0, firstRequestMs, lastResponseMs, ...given };
  /** Open requests for each connection; undefined before its first. */
  const openRequests = new Map<Socket, number | undefined>();
  const openResponses = new Set<ServerResponse>();
  let closing = false;
  /** By performance.now(). */
  let idleUntilMs = 0;
  const makeLast = (response: ServerResponse) => {
    if (!response.headersSent) response.setHeader("connection", "close");
  };

  server.on("connection", (socket) => {
    openRequests.set(socket, undefined);
    socket.once("close", () => openRequests.delete(socket));
  });
  // Before what answers it.
  server.prependListener("request", ({ socket }, response) => {
    openRequests.set(socket, (openRequests.get(socket) ?? 0) + 1);
    openResponses.add(response);
    if (closing) makeLast(response);
    // The response was sent in full, or the connection is gone.
    response.once("close", () => {
      openResponses.delete(response);
      const requests = openRequests.get(socket);
      if (requests) openRequests.set(socket, requests - 1);
    });
  });
  // An upgraded connection is in use until it ends.
  server.on("upgrade", (_request, socket: Socket) => openRequests.set(socket, Number.POSITIVE_INFINITY));
  const destroyIdle = () => {
    for (const [socket, requests] of openRequests) if (requests === 0) socket.destroy();
  };
  // Fastify and Node call it too when they start closing.
  server.closeIdleConnections = () => {
    if (performance.now() < idleUntilMs) return;
    // Requests that have arrived are read in between.
    setImmediate(() => setImmediate(destroyIdle));
  };

  return async () => {
    closing = true;
    idleUntilMs = performance.now() + limits.idleMs;
    for (const response of openResponses) makeLast(response);
    // A connection that becomes idle from now on would otherwise stay open until the client closes it.
    const sweep = setInterval(() => server.closeIdleConnections(), sweepMs);
    const silent = setTimeout(() => {
      for (const [socket, requests] of openRequests) if (requests === undefined) socket.destroy();
    }, limits.firstRequestMs);
    const late = setTimeout(() => {
      for (const response of openResponses) breakOff(response);
      for (const socket of openRequests.keys()) socket.destroy();
    }, limits.lastResponseMs);
    try {
      await close();
    } finally {
      clearInterval(sweep);
      clearTimeout(silent);
      clearTimeout(late);
    }
  };
}
