import { Socket } from "node:net";
import type { FastifyInstance } from "fastify";

/**
 * Limits how long a client may take nothing of an answer, in ms: then its connection is cut, because the rest is held in
 * memory. What is sent while it comes (events, files, what servers in sandboxes answer) holds no more than a buffer, and
 * is limited where it is sent.
 */
export function limitSending(app: FastifyInstance, { ms }: { ms: number }): void {
  // Without a listener Node would cut any connection, also one on which another request waits for its answer.
  app.addHook("onRequest", (_request, { raw }, done) => {
    raw.on("timeout", (socket: Socket) => {
      if (socket.writableLength > 0) socket.destroy();
    });
    done();
  });
  app.addHook("onSend", ({ raw: { socket } }, _reply, payload, done) => {
    // Part of a large chunk that was taken counts as well. A request that a test injects has no connection.
    if (socket instanceof Socket) socket.setTimeout(ms);
    done(null, payload);
  });
}
