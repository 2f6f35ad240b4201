import type { Socket } from "node:net";
import type { App } from "./route.ts";

/** Between two looks for connections that have fallen idle. */
const sweepMs = 100;
/** How long a client that has just connected may take to send its first request once the server closes. */
const firstRequestMs = 2_000;
/** How long a client may then take to send the rest of a request and to read its answer. */
const lastAnswerMs = 30_000;

/**
 * Watches an app's connections, and answers what closes it: no answer is cut off, and no client holds it up. Node alone
 * takes a connection for idle while bytes of its last answer are unsent, and waits without end for one that never sends
 * a whole request.
 */
export function createGracefulClose(app: App, limits = { firstRequestMs, lastAnswerMs }): () => Promise<void> {
  /** How many requests of a connection are being answered; undefined before its first. */
  const answering = new Map<Socket, number | undefined>();
  let closing = false;

  app.server.on("connection", (socket) => {
    answering.set(socket, undefined);
    socket.once("close", () => answering.delete(socket));
  });
  app.server.on("request", ({ socket }, response) => {
    answering.set(socket, (answering.get(socket) ?? 0) + 1);
    // All was sent, or the connection is gone.
    response.once("close", () => {
      const requests = answering.get(socket);
      if (requests) answering.set(socket, requests - 1);
    });
  });
  // Fastify and Node call it too when they begin to close.
  app.server.closeIdleConnections = () => {
    for (const [socket, requests] of answering) if (requests === 0) socket.destroy();
  };
  app.addHook("onSend", async (_request, reply) => {
    if (closing) reply.header("connection", "close");
  });

  return async () => {
    closing = true;
    // A connection that falls idle from now on would otherwise be kept until the client ends it.
    const sweep = setInterval(() => app.server.closeIdleConnections(), sweepMs);
    const silent = setTimeout(() => {
      for (const [socket, requests] of answering) if (requests === undefined) socket.destroy();
    }, limits.firstRequestMs);
    const late = setTimeout(() => app.server.closeAllConnections(), limits.lastAnswerMs);
    try {
      await app.close();
    } finally {
      clearInterval(sweep);
      clearTimeout(silent);
      clearTimeout(late);
    }
  };
}
