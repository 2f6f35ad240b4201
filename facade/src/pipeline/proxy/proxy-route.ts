import type { FastifyReply, FastifyRequest } from "fastify";

/** The handlers of a route with the rule `upgrades` that passes its requests on, those for WebSockets included. */
export function passRequests(
  pass: (request: FastifyRequest, reply: FastifyReply, isUpgrade: boolean) => Promise<void>,
) {
  return {
    async preHandler(request: FastifyRequest, reply: FastifyReply) {
      if (request.ws) await pass(request, reply, true);
    },
    async handler(request: FastifyRequest, reply: FastifyReply) {
      await pass(request, reply, false);
      return reply;
    },
  };
}
