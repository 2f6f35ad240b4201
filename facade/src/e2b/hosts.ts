import type { IncomingMessage } from "node:http";
import type { E2bSettings } from "./settings.ts";

/** Where envd's routes are. */
export const envdPrefix = "/e2b/envd";
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

/** Where a host below the domain leads: to the control plane, envd or a port. Undefined: it is none of E2B's. */
export function e2bPlaceOf(host: string, domain: string): "api" | "sandbox" | PortPlace | undefined {
  const name = hostOf(host);
  const ending = `.${hostOf(domain)}`;
  if (!name.endsWith(ending)) return undefined;
  const label = name.slice(0, -ending.length);
  if (label === "api" || label === "sandbox") return label;
  const [, digits = "0", sandboxName = ""] = ofSandbox.exec(label) ?? [];
  const port = Number(digits);
  return port < 1 || port > 65_535 ? undefined : { port, sandboxName };
}

/** The path of a request on a host below the domain, as routes have it. Undefined: the request has another host. */
export function e2bPathOf(raw: IncomingMessage, { e2bDomain: domain }: E2bSettings): string | undefined {
  const place = domain === undefined ? undefined : e2bPlaceOf(raw.headers.host ?? "", domain);
  if (place === undefined) return undefined;
  const { url = "/" } = raw;
  if (place === "api") return url.startsWith("/e2b/") ? url : `/e2b${url}`;
  if (place === "sandbox") return `${envdPrefix}${url}`;
  if (place.port === envdPort) {
    raw.headers["e2b-sandbox-id"] = place.sandboxName;
    return `${envdPrefix}${url}`;
  }
  portPlaces.set(raw, place);
  return portPrefix + (url.startsWith("/") ? url : `/${url}`);
}

/** Below what path pages of any origin may call, as with E2B: envd knows callers by tokens and signatures alone. */
export function e2bOpenPath({ e2bDomain }: E2bSettings): string | undefined {
  return e2bDomain === undefined ? undefined : envdPrefix;
}

/** Without the port, in lower case. */
function hostOf(host: string): string {
  return host.replace(/:\d+$/, "").toLowerCase();
}
