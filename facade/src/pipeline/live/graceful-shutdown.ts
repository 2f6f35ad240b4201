import type { Socket } from "node:net";
import type { App } from "../base/app.ts";

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
 * Tracks an app's connections, and returns a function that closes the app. It cuts off no request or response, and
 * waits for no slow client forever. Node by itself treats a connection as idle while bytes of its last response are
 * unsent, and waits indefinitely for one that never sends a complete request. Idle connections are closed at once,
 * unless `idleMs` is given.
 */
export function createGracefulShutdown(app: App, given: Partial<ShutdownLimits> = {}): () => Promise<void> {
  const limits: ShutdownLimits = { idleMs: 0, firstRequestMs, lastResponseMs, ...given };
  /** Open requests for each connection; undefined before its first. */
  const openRequests = new Map<Socket, number | undefined>();
  let closing = false;
  /** By performance.now(). */
  let idleUntilMs = 0;

  app.server.on("connection", (socket) => {
    openRequests.set(socket, undefined);
    socket.once("close", () => openRequests.delete(socket));
  });
  app.server.on("request", ({ socket }, response) => {
    openRequests.set(socket, (openRequests.get(socket) ?? 0) + 1);
    // The response was sent in full, or the connection is gone.
    response.once("close", () => {
      const requests = openRequests.get(socket);
      if (requests) openRequests.set(socket, requests - 1);
    });
  });
  // An upgraded connection is in use until it ends.
  app.server.on("upgrade", (_request, socket: Socket) => openRequests.set(socket, Number.POSITIVE_INFINITY));
  const destroyIdle = () => {
    for (const [socket, requests] of openRequests) if (requests === 0) socket.destroy();
  };
  // Fastify and Node call it too when they start closing.
  app.server.closeIdleConnections = () => {
    if (performance.now() < idleUntilMs) return;
    // Requests that have arrived are read in between.
    setImmediate(() => setImmediate(destroyIdle));
  };
  app.addHook("onSend", (_request, reply, _payload, done) => {
    if (closing) reply.header("connection", "close");
    done();
  });

  return async () => {
    closing = true;
    idleUntilMs = performance.now() + limits.idleMs;
    // A connection that becomes idle from now on would otherwise stay open until the client closes it.
    const sweep = setInterval(() => app.server.closeIdleConnections(), sweepMs);
    const silent = setTimeout(() => {
      for (const [socket, requests] of openRequests) if (requests === undefined) socket.destroy();
    }, limits.firstRequestMs);
    const late = setTimeout(() => {
      for (const socket of openRequests.keys()) socket.destroy();
    }, limits.lastResponseMs);
    try {
      await app.close();
    } finally {
      clearInterval(sweep);
      clearTimeout(silent);
      clearTimeout(late);
    }
  };
}
