import cors from "@fastify/cors";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { FastifyInstance, FastifyRequest } from "fastify";

// Credentials travel in the Authorization header, so cookies are not allowed.
const shared = {
  methods: ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
  allowedHeaders: [
    "Authorization",
    "Content-Encoding",
    "Content-Type",
    "Idempotency-Key",
    "If-Match",
    "If-None-Match",
    "If-Range",
    "Last-Event-ID",
    "Range",
    "X-Request-Id",
    "X-Workspace-Id",
  ],
  exposedHeaders: [
    "Content-Disposition",
    "Content-Range",
    "ETag",
    "X-Request-Id",
    "Retry-After",
    "RateLimit-Limit",
    "RateLimit-Remaining",
    "RateLimit-Reset",
  ],
  maxAge: 600,
};
/** For any page. The headers that it asks for are allowed, since `*` stands for all but Authorization. */
const open = { methods: shared.methods, origin: "*", exposedHeaders: "*", maxAge: shared.maxAge };

/** The origins of the applications that may call from a browser. */
export function originsOf(redirectUris: readonly string[]): ReadonlySet<string> {
  return new Set(redirectUris.map((uri) => new URL(uri).origin));
}

const loopback = /^(?:localhost|127\.0\.0\.1|\[::1\])(?::\d+)?$/;

/** Whether a host, perhaps with a port, is a name of the machine that the client itself runs on. */
export function isLoopback(host: string): boolean {
  return loopback.test(host);
}

/**
 * Throws FORBIDDEN for a request of a browser from an origin that is neither the API's own nor one of these. Without an
 * Origin it is no browser's.
 */
export function requireKnownOrigin(
  { headers: { origin, host = "" } }: Pick<FastifyRequest, "headers">,
  o: { origins: ReadonlySet<string>; publicUrl: string },
): void {
  if (origin === undefined || o.origins.has(origin) || origin === new URL(o.publicUrl).origin) return;
  // By whatever name this machine is called there: no other site has these.
  if (isLoopback(host) && origin === `http://${host}`) return;
  throw new DomainError("FORBIDDEN", "Pages of this origin may not use the API.", {
    hint: "Serve the page from the API's own origin, or from one of SANDGATE_REDIRECT_URIS.",
  });
}

/**
 * Returns the origin of the page that made the request, which is the API's own: the public one, or that of the host
 * that was asked. Throws FORBIDDEN for any other, for one of plain http where the API is reached by https, and without
 * one.
 */
export function requireOwnOrigin(
  { headers: { origin = "", host } }: Pick<FastifyRequest, "headers">,
  publicUrl: string,
): string {
  const own = new URL(publicUrl);
  const page = URL.parse(origin);
  if (origin === own.origin) return origin;
  const isSafe = own.protocol !== "https:" || page?.protocol === "https:";
  if (page && page.host === host && (isSafe || isLoopback(host))) return origin;
  throw new DomainError("FORBIDDEN", "Only pages of the API's own origin may do this.", {
    hint: "Programs use POST /auth/login, POST /auth/refresh and POST /auth/logout.",
  });
}

/**
 * Sets the CORS headers for browsers on the given origins (Fetch standard, CORS protocol), and answers preflights from
 * them. A preflight from elsewhere is a request like any other. Below `openPath`, where no cookie counts, all origins are
 * given.
 */
export async function shareAcrossOrigins(
  app: FastifyInstance,
  { origins, openPath }: { origins: ReadonlySet<string>; openPath?: string | undefined },
): Promise<void> {
  if (origins.size === 0 && openPath === undefined) return;
  await app.register(cors, {
    delegator({ url, headers: { origin, "access-control-request-method": asked } }, done) {
      const preflight = asked !== undefined;
      if (openPath !== undefined && url.startsWith(`${openPath}/`)) done(null, { ...open, preflight });
      else done(null, { ...shared, origin: origin !== undefined && origins.has(origin), preflight });
    },
  });
}
