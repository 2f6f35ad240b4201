import type { IncomingMessage } from "node:http";
import type { E2bSettings } from "./settings.ts";

/** Where the routes for ports are, which no path leads to but through a sandbox's own host. */
export const portPrefix = "/e2b/port";
/** The port of envd, which nothing in a sandbox listens on. */
const envdPort = 49_983;
const ofSandbox = /^(\d{1,5})-([a-z0-9]+)$/;

/** What a request on a sandbox's own host is for. */
export interface PortPlace {
  port: number;
  sandboxName: string;
}

const portPlaces = new WeakMap<IncomingMessage, PortPlace>();

/** Of a request that came to the host of a port. */
export function portPlaceOf(raw: IncomingMessage): PortPlace | undefined {
  return portPlaces.get(raw);
}

/** The path of a request on a host below the domain, as routes have it. Undefined: the request has another host. */
export function e2bPathOf(raw: IncomingMessage, { e2bDomain: domain }: E2bSettings): string | undefined {
  if (domain === undefined) return undefined;
  const host = hostOf(raw.headers.host ?? "");
  const ending = `.${hostOf(domain)}`;
  if (!host.endsWith(ending)) return undefined;
  const label = host.slice(0, -ending.length);
  const { url = "/" } = raw;
  if (label === "api") return url.startsWith("/e2b/") ? url : `/e2b${url}`;
  if (label === "sandbox") return `/e2b/envd${url}`;
  const [, digits = "0", sandboxName = ""] = ofSandbox.exec(label) ?? [];
  const port = Number(digits);
  if (port < 1 || port > 65_535) return undefined;
  if (port === envdPort) {
    raw.headers["e2b-sandbox-id"] = sandboxName;
    return `/e2b/envd${url}`;
  }
  portPlaces.set(raw, { port, sandboxName });
  return portPrefix + (url.startsWith("/") ? url : `/${url}`);
}

/** Without the port, in lower case. */
function hostOf(host: string): string {
  return host.replace(/:\d+$/, "").toLowerCase();
}
