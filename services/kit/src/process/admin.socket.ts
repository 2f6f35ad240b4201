import { once } from "node:events";
import { lstatSync, rmSync } from "node:fs";
import { createServer, request } from "node:http";
import { relative, resolve } from "node:path";
import { text } from "node:stream/consumers";
import type { FastifyInstance } from "fastify";

/**
 * Serves the app on a unix socket of mode 0600, so that the system itself refuses everybody but the process's own user,
 * and no web page can ask. A socket that is left at the path, as after a crash, is replaced.
 */
export async function listenOnSocket(app: FastifyInstance, path: string): Promise<{ close(): Promise<void> }> {
  if (lstatSync(path, { throwIfNoEntry: false })?.isSocket()) rmSync(path);
  await app.ready();
  const server = createServer((incoming, response) => app.routing(incoming, response));
  // The socket is made within the call with the mode that it keeps: there is no moment in which others can open it.
  const umask = process.umask(0o177);
  try {
    server.listen(shortest(path));
  } finally {
    process.umask(umask);
  }
  await once(server, "listening");
  return {
    async close() {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
      await app.close();
    },
  };
}

/** Sends a request to the server at the socket. */
export async function askSocket(path: string, method: string, target: string) {
  const asked = request({ socketPath: shortest(path), method, path: target });
  asked.end();
  const [response] = await once(asked, "response");
  return { status: Number(response.statusCode), body: await text(response) };
}

/** An address of a unix socket has 107 bytes at most, which a path from the current folder keeps to more often. */
function shortest(path: string): string {
  const [absolute, near] = [resolve(path), relative(process.cwd(), path)];
  return near.length < absolute.length ? near : absolute;
}
