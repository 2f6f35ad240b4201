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
  /** Sent to the first origin only, never to where it redirects. */
  readonly authorization?: string | undefined;
  readonly signal: AbortSignal;
}

/** Gets something from a server on the internet, or one that an operator has named, and no other. */
export type GuardedRequest = (url: URL, init: GuardedInit) => Promise<GuardedResponse>;

/** The server is at an address, or without TLS, where only servers named by the operator may be reached. */
export class AddressRefused extends Error {
  override readonly name = "AddressRefused";
}

const mostRedirects = 3;
/** How long one DNS server has for an answer, and how often each is asked. */
const dnsPatience = { timeout: 2_000, tries: 2 };
/** A manifest, an image's config or a token; registries refuse manifests over 4 MiB themselves. */
const mostBytes = 4 * 1024 * 1024;

/**
 * Makes requests to hosts that tenants name. The address is judged as it is connected to, so that a name can't be resolved
 * to a public address when it is checked and to a private one when it is used. Redirects are judged in the same way.
 *
 * @param resolver asked for the addresses of names; those that the operator has named are looked up as the system does it
 */
export function createGuardedRequest(
  allowed: AllowedHosts,
  resolver: dns.Resolver = new dns.Resolver(dnsPatience),
): GuardedRequest {
  return async (url, init) => {
    let at = url;
    for (let redirects = 0; ; redirects += 1) {
      const authorization = at.origin === url.origin ? init.authorization : undefined;
      const response = await requestOnce(allowed, resolver, at, { ...init, authorization });
      const { location } = response.headers;
      if (location === undefined || ![301, 302, 303, 307, 308].includes(response.status)) return response;
      if (redirects === mostRedirects) throw new Error(`${url.host} redirects too often`);
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
  if (!secure && url.protocol !== "http:") throw new AddressRefused(`${url.protocol} is not spoken by registries`);
  const host = `${url.hostname}:${url.port || (secure ? 443 : 80)}`;
  if (!secure && !allowed.names(host)) throw new AddressRefused(`${url.host} may not be reached without TLS`);

  const refusal = () => new AddressRefused(`${url.host} is at an address that is not public`);
  // Node looks up names only, so a literal address is judged here.
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

  // The system's lookup holds a thread that much else in the process waits for, as long as a tenant's DNS server likes.
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
        const parts: Buffer[] = [];
        let bytes = 0;
        response.on("data", (part: Buffer) => {
          parts.push(part);
          bytes += part.length;
          if (bytes > mostBytes) response.destroy(new Error(`${url.host} answers with more than ${mostBytes} bytes`));
        });
        response.on("error", reject);
        response.on("end", () =>
          resolve({ status: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(parts), url }),
        );
      },
    );
    request.on("error", reject);
    request.end();
  });
}
