import type { FastifyReply, FastifyRequest } from "fastify";

const methods = "GET, HEAD, POST, PUT, DELETE";
const requestHeaders = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Request-Id, X-Workspace-Id";
const responseHeaders = "X-Request-Id, Retry-After, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset";
const preflightSeconds = "600";

/** The origins of the applications that may call from a browser. */
export function originsOf(redirectUris: readonly string[]): ReadonlySet<string> {
  return new Set(redirectUris.map((uri) => new URL(uri).origin));
}

/**
 * Sets the CORS headers for browsers on the given origins (Fetch standard, CORS protocol). Returns true for a preflight from one
 * of them, which the headers answer in full. Credentials travel in the Authorization header, so cookies are not allowed.
 */
export function shareAcrossOrigins(
  request: FastifyRequest,
  reply: FastifyReply,
  origins: ReadonlySet<string>,
): boolean {
  if (origins.size === 0) return false;
  reply.header("vary", "Origin");
  const { origin } = request.headers;
  if (origin === undefined || !origins.has(origin)) return false;
  reply.header("access-control-allow-origin", origin);
  if (request.method !== "OPTIONS" || request.headers["access-control-request-method"] === undefined) {
    reply.header("access-control-expose-headers", responseHeaders);
    return false;
  }
  reply.headers({
    "access-control-allow-methods": methods,
    "access-control-allow-headers": requestHeaders,
    "access-control-max-age": preflightSeconds,
  });
  return true;
}
