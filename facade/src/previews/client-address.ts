import type { IncomingMessage } from "node:http";
import proxyAddr from "@fastify/proxy-addr";

/** Reads the client's address as Fastify does: from X-Forwarded-For, as far as it comes from trusted proxies. */
export function createAddressReader(trustedProxies: readonly string[]): (request: IncomingMessage) => string {
  const isTrusted = proxyAddr.compile([...trustedProxies]);
  return (request) => proxyAddr(request, isTrusted);
}
