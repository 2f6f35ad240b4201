import { ClientInfoSchema } from "@sandgate/proto/identity/v1/identity";
import type { FastifyRequest } from "fastify";
import { maxLengthOf } from "../../pipeline/messages/field-rules.ts";

/** A proxy may forward an address that is none. */
const maxAddressLength = maxLengthOf(ClientInfoSchema, "address");
const maxUserAgentLength = maxLengthOf(ClientInfoSchema, "user_agent");

/** Where a request came from, as the list of sessions shows it. */
export function clientOf(request: FastifyRequest): { address: string; userAgent: string } {
  return {
    address: request.ip.slice(0, maxAddressLength),
    userAgent: (request.headers["user-agent"] ?? "").slice(0, maxUserAgentLength),
  };
}
