import type { FastifyRequest } from "fastify";

/** The longest that the contract accepts; a proxy may forward an address that is none. */
const maxAddressLength = 64;
const maxUserAgentLength = 256;

/** Where a request came from, as the list of sessions shows it. */
export function clientOf(request: FastifyRequest): { address: string; userAgent: string } {
  return {
    address: request.ip.slice(0, maxAddressLength),
    userAgent: (request.headers["user-agent"] ?? "").slice(0, maxUserAgentLength),
  };
}
