import { isIP } from "node:net";
import type { FastifyInstance, FastifyRequest } from "fastify";

/**
 * Refuses requests that don't come from this machine (or container). The port requires no credentials, and others than
 * operators read its metrics. Whoever can run programs on the machine can do more anyway.
 */
export function requireLocalRequests(app: FastifyInstance): void {
  app.addHook("onRequest", async (request, reply) => {
    if (!isLocal(request)) return reply.code(403).send({ error: "answered only on the machine of the process itself" });
    if (isFromWebPage(request)) return reply.code(403).send({ error: "not answered to web pages" });
  });
}

/** True for a connection with the same address at both ends, which only a machine can make to itself. */
function isLocal({ socket }: FastifyRequest): boolean {
  return socket.remoteAddress !== undefined && socket.remoteAddress === socket.localAddress;
}

/**
 * True for a request of a web page in an operator's browser: one of another site, or one under a name that leads here
 * (DNS rebinding).
 */
function isFromWebPage({ headers, hostname }: FastifyRequest): boolean {
  const site = headers["sec-fetch-site"];
  const isNamed = hostname !== "localhost" && isIP(hostname.replace(/^\[|\]$/g, "")) === 0;
  return headers.origin !== undefined || (site !== undefined && site !== "none") || isNamed;
}
