import cors from "@fastify/cors";
import type { FastifyInstance } from "fastify";

// Credentials travel in the Authorization header, so cookies are not allowed.
const shared = {
  methods: ["GET", "HEAD", "POST", "PUT", "DELETE"],
  allowedHeaders: [
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "Last-Event-ID",
    "X-Request-Id",
    "X-Workspace-Id",
  ],
  exposedHeaders: ["X-Request-Id", "Retry-After", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"],
  maxAge: 600,
};

/** The origins of the applications that may call from a browser. */
export function originsOf(redirectUris: readonly string[]): ReadonlySet<string> {
  return new Set(redirectUris.map((uri) => new URL(uri).origin));
}

/**
 * Sets the CORS headers for browsers on the given origins (Fetch standard, CORS protocol), and answers preflights from
 * them. A preflight from elsewhere is a request like any other.
 */
export async function shareAcrossOrigins(app: FastifyInstance, origins: ReadonlySet<string>): Promise<void> {
  if (origins.size === 0) return;
  await app.register(cors, {
    delegator: ({ headers: { origin, "access-control-request-method": asked } }, done) =>
      done(null, {
        ...shared,
        origin: origin !== undefined && origins.has(origin),
        preflight: asked !== undefined,
      }),
  });
}
