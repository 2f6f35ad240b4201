import type { IncomingMessage } from "node:http";
import { getDomain } from "tldts";

/** The domain of previews where none is set: each name below it leads to this machine (RFC 6761, 6.3). */
export const localhost = "localhost";

/** What the service makes labels of. */
export const labelPattern = /^[a-z2-7]{26}$/;

/** The hosts of previews: one label before the domain. */
export interface PreviewHosts {
  /** The label that a request's host has; undefined for a host that is no preview's. */
  labelOf(request: Pick<IncomingMessage, "headers">): string | undefined;
  /** The origin of a preview, as browsers name it. */
  originOf(label: string): string;
}

/** @param o.port the port of previews on this machine, which no other domain's origins name */
export function createPreviewHosts(o: { domain: string; port: () => number }): PreviewHosts {
  const { domain } = o;
  const ending = `.${domain}`;
  return {
    labelOf({ headers: { host = "" } }) {
      const name = host.toLowerCase().replace(/:\d*$/, "").replace(/\.$/, "");
      if (name !== domain && !name.endsWith(ending)) return undefined;
      const label = name.slice(0, -ending.length);
      // All other names of this machine may be the API's. A domain of previews has nothing else.
      return domain === localhost && !labelPattern.test(label) ? undefined : label;
    },
    originOf: (label) =>
      domain === localhost ? `http://${label}.${domain}:${o.port()}` : `https://${label}.${domain}`,
  };
}

/**
 * Whether browsers take previews for the same site as the API, by the public suffix list, and so may give the one what
 * is the other's. On this machine they may.
 */
export function isSameSite(previewDomain: string, apiHost: string): boolean {
  if (previewDomain === localhost) return false;
  const siteOf = (host: string) => getDomain(host, { allowPrivateDomains: true }) ?? host;
  return siteOf(`label.${previewDomain}`) === siteOf(apiHost);
}
