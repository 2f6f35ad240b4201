import { Socket } from "node:net";
import type { FastifyInstance } from "fastify";

/**
 * Limits how long a client may take nothing of an answer, in ms, at most twice that: then its connection is cut, because
 * the rest is held in memory. Events and files, which are sent while they come, have limits where they are sent; what
 * servers in sandboxes answer has none, and holds no more than a buffer.
 */
export function limitSending(app: FastifyInstance, { ms }: { ms: number }): void {
  app.addHook("onSend", ({ raw: { socket } }, { raw }, payload, done) => {
    // A request that a test injects has no connection, and the close of one whose client has left won't come again.
    if (socket instanceof Socket && !raw.destroyed) {
      let before: number | undefined;
      // The socket's own timeout begins anew with all that its client sends, line breaks between requests too.
      const check = setInterval(() => {
        const waiting = waitingBytesOf(socket);
        const progress = socket.bytesWritten - waiting;
        if (waiting > 0 && progress === before) socket.destroy();
        before = progress;
      }, ms).unref();
      raw.once("close", () => clearInterval(check));
    }
    done(null, payload);
  });
}

/**
 * What the system hasn't taken: less whenever it takes some. A write that is on its way counts as a whole until it is
 * done, and what is left of it again.
 */
function waitingBytesOf(socket: Socket): number {
  const { _handle: handle } = socket as unknown as { _handle: { writeQueueSize?: number } | null };
  return socket.writableLength + (handle?.writeQueueSize ?? 0);
}
