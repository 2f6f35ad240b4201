import { promises as dns, type LookupAddress } from "node:dns";
import http from "node:http";
import https from "node:https";
import type { LookupFunction } from "node:net";
import { type AllowedHosts, isPrivateHost } from "./allowed-hosts.ts";

export interface GuardedResponse {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: Buffer;
  /** Where the answer came from, after redirects. */
  readonly url: URL;
}

interface GuardedInit {
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent to the origin of the url only, never to another that it redirects to. */
  readonly authorization?: string | undefined;
  readonly signal: AbortSignal;
}

/** A GET request to a public server, or to one that an operator has named, and to no other. */
export type GuardedRequest = (url: URL, init: GuardedInit) => Promise<GuardedResponse>;

/** The server has a private address or no TLS, and the operator has not named it. */
export class AddressRefused extends Error {
  override readonly name = "AddressRefused";
}

const maxRedirects = 3;
/** Milliseconds for the answer of one DNS server, and how often each is asked. */
const dnsLimits = { timeout: 2_000, tries: 2 };
/** For a manifest, an image's config or a token; registries themselves refuse manifests over 4 MiB. */
const maxBytes = 4 * 1024 * 1024;

/**
 * Makes requests to hosts that tenants name. The address is checked as the connection is made, so that a name can't resolve
 * to a public address when it is checked and to a private one when it is used. Redirects are checked in the same way.
 *
 * @param resolver resolves names, but for hosts that the operator has named: those are looked up as the system does it
 */
export function createGuardedRequest(
  allowed: AllowedHosts,
  resolver: dns.Resolver = new dns.Resolver(dnsLimits),
): GuardedRequest {
  return async (url, init) => {
    let at = url;
    for (let redirects = 0; ; redirects += 1) {
      const authorization = at.origin === url.origin ? init.authorization : undefined;
      const response = await requestOnce(allowed, resolver, at, { ...init, authorization });
      const { location } = response.headers;
      if (location === undefined || ![301, 302, 303, 307, 308].includes(response.status)) return response;
      if (redirects === maxRedirects) throw new Error(`${url.host} redirected too often`);
      at = new URL(location, at);
    }
  };
}

function requestOnce(
  allowed: AllowedHosts,
  resolver: dns.Resolver,
  url: URL,
  init: GuardedInit,
): Promise<GuardedResponse> {
  const { headers, authorization, signal } = init;
  const secure = url.protocol === "https:";
  if (!secure && url.protocol !== "http:") throw new AddressRefused(`${url.protocol} is not a protocol of registries`);
  const host = `${url.hostname}:${url.port || (secure ? 443 : 80)}`;
  if (!secure && !allowed.names(host)) throw new AddressRefused(`${url.host} may not be reached without TLS`);

  const refusal = () => new AddressRefused(`${url.host} is at an address that is not public`);
  // Node looks up names only, so a literal address is checked here.
  if (isPrivateHost(host) && !allowed.names(host)) throw refusal();

  const guardedLookup: LookupFunction = (name, options, callback) => {
    findAddresses(name, options).then(
      (addresses) => {
        const [first] = addresses;
        if (first === undefined || addresses.some(({ address }) => !allowed.permits(host, address))) {
          return callback(refusal(), "");
        }
        return options.all ? callback(null, addresses) : callback(null, first.address, first.family);
      },
      (error: Error) => callback(error, ""),
    );
  };

  // The system's lookup blocks one of the few threads of libuv for as long as a tenant's DNS server likes.
  async function findAddresses(name: string, options: object): Promise<LookupAddress[]> {
    if (allowed.names(host)) return dns.lookup(name, { ...options, all: true });
    const found = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)]);
    const addresses = found.flatMap((each, index) =>
      each.status === "fulfilled" ? each.value.map((address) => ({ address, family: index === 0 ? 4 : 6 })) : [],
    );
    const failure = found.find((each) => each.status === "rejected");
    if (addresses.length === 0 && failure) throw failure.reason;
    return addresses;
  }

  return new Promise((resolve, reject) => {
    const request = (secure ? https : http).request(
      url,
      {
        agent: false,
        lookup: guardedLookup,
        signal,
        headers: { "user-agent": "sandgate", ...headers, ...(authorization && { authorization }) },
      },
      (response) => {
        const chunks: Buffer[] = [];
        let bytes = 0;
        response.on("data", (chunk: Buffer) => {
          chunks.push(chunk);
          bytes += chunk.length;
          if (bytes > maxBytes) response.destroy(new Error(`${url.host} answered with more than ${maxBytes} bytes`));
        });
        response.on("error", reject);
        response.on("end", () =>
          resolve({ status: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(chunks), url }),
        );
      },
    );
    request.on("error", reject);
    request.end();
  });
}
