import { trimEndSlashes } from "@sandgate/kit/base/web-addresses";
import { isLoopback } from "../pipeline/admission/cors.ts";
import { readCookie } from "../pipeline/base/cookies.ts";

/** Where the page that made a request was loaded from, and the path prefix of the API there. */
export interface DashboardSite {
  origin: string;
  /** Empty, or with a slash at its start and none at its end. */
  prefix: string;
}

/** The path prefix of the API at its public address. */
export function prefixOf(publicUrl: string): string {
  return trimEndSlashes(new URL(publicUrl).pathname);
}

const cookieName = "sandgate-session";

/**
 * Browsers keep `__Host-` cookies of https, and of this machine's own addresses: no other host can set them. Over plain
 * http from elsewhere they would drop it, so the cookie is one of the dashboard's paths alone there.
 */
function isHostCookie({ origin }: DashboardSite): boolean {
  const { protocol, host } = new URL(origin);
  return protocol === "https:" || isLoopback(host);
}

function nameOf(site: DashboardSite): string {
  return `${isHostCookie(site) ? "__Host-" : ""}${cookieName}`;
}

/** The cookie that holds a session's refresh token. Scripts can't read it, and other sites' requests lack it. */
export function sessionCookie(site: DashboardSite, value: { refreshToken: string; maxAgeSeconds: number }): string {
  const scope = isHostCookie(site) ? "Path=/; Secure" : `Path=${site.prefix}/dashboard/session`;
  return `${nameOf(site)}=${value.refreshToken}; Max-Age=${value.maxAgeSeconds}; ${scope}; HttpOnly; SameSite=Strict`;
}

/** The same cookie's removal. */
export function sessionCookieRemoval(site: DashboardSite): string {
  return sessionCookie(site, { refreshToken: "", maxAgeSeconds: 0 });
}

/** The refresh token in a Cookie header; undefined without one. */
export function readSessionCookie(site: DashboardSite, header: string | undefined): string | undefined {
  return readCookie(header, nameOf(site)) || undefined;
}
