import { isIP } from "node:net";
import type { FastifyInstance, FastifyRequest } from "fastify";

/**
 * Refuses what doesn't come from this machine (or container). The port asks for no credentials and others than operators reach
 * it for its metrics; whoever may run programs on the machine may do more anyway.
 */
export function requireLocalRequests(app: FastifyInstance): void {
  app.addHook("onRequest", async (request, reply) => {
    if (!isLocal(request)) return reply.code(403).send({ error: "only answered on the machine of the process itself" });
    if (isFromWebPage(request)) return reply.code(403).send({ error: "not answered to web pages" });
  });
}

/** A connection that a machine makes to itself has one address at both ends, which no other can have. */
function isLocal({ socket }: FastifyRequest): boolean {
  return socket.remoteAddress !== undefined && socket.remoteAddress === socket.localAddress;
}

/** Whether a page in an operator's browser asks, of another site or under a name of its own that leads here (DNS rebinding). */
function isFromWebPage({ headers, hostname }: FastifyRequest): boolean {
  const site = headers["sec-fetch-site"];
  const isNamed = hostname !== "localhost" && isIP(hostname.replace(/^\[|\]$/g, "")) === 0;
  return headers.origin !== undefined || (site !== undefined && site !== "none") || isNamed;
}
