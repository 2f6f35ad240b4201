import { promises as dns, type LookupAddress } from "node:dns";
import http from "node:http";
import https from "node:https";
import type { LookupFunction } from "node:net";
import type { Readable } from "node:stream";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { type AllowedHosts, isPrivateHost } from "./allowed-hosts.ts";

export interface GuardedResponse {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  /** Has to be read to its end or destroyed. It fails when nothing comes for 30 s. */
  readonly body: Readable;
  /** Where the answer came from, after redirects. */
  readonly url: URL;
}

interface GuardedInit {
  /** GET unless given. */
  readonly method?: "GET" | "HEAD";
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent to the origin of the url only, never to another that it redirects to. */
  readonly authorization?: string | undefined;
  /** Keeps connections for the requests after this one. Each has a connection of its own unless given. */
  readonly connections?: Connections | undefined;
  readonly signal: AbortSignal;
}

/** Connections kept between requests, up to 8 to a server. Requests that wait for one are served in order. */
export interface Connections {
  readonly http: http.Agent;
  readonly https: https.Agent;
  close(): void;
}

/** A request to a public server, or to one that an operator has named, and to no other. */
export type GuardedRequest = (url: URL, init: GuardedInit) => Promise<GuardedResponse>;

/** The server has a private address or no TLS, and the operator has not named it. */
export class AddressRefused extends Error {
  override readonly name = "AddressRefused";
}

const maxRedirects = 3;
/** Milliseconds for the answer of one DNS server, and how often each is asked. */
const dnsLimits = { timeout: 2_000, tries: 2 };
/** For an image's config, the longest that is read. */
const maxBytes = mebibyte;
/** Of a body that nobody reads; more than an error's text takes. */
const maxDiscardedBytes = 64 * 1024;
const idleMs = 30_000;

/** Opens no connection yet; `close` ends those that requests have opened. */
export function openConnections(): Connections {
  const options = { keepAlive: true, maxSockets: 8 };
  const [plain, secure] = [new http.Agent(options), new https.Agent(options)];
  return {
    http: plain,
    https: secure,
    close() {
      plain.destroy();
      secure.destroy();
    },
  };
}

/** Lets go of an answer whose body says nothing, and of its connection unless the body is short. */
export function discard({ body }: GuardedResponse): void {
  let bytes = 0;
  body.on("error", () => {});
  body.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > maxDiscardedBytes) body.destroy();
  });
}

/** The whole of a body that is not a layer. Throws on one of more than 1 MiB, unless given another limit. */
export async function readBody({ body, url }: GuardedResponse, mostBytes: number = maxBytes): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    chunks.push(chunk);
    bytes += chunk.length;
    // Leaving the loop destroys the body.
    if (bytes > mostBytes) throw new Error(`${url.host} answers with more than ${mostBytes} bytes`);
  }
  return Buffer.concat(chunks);
}

/**
 * Makes requests to hosts that tenants name. The address is checked as the connection is made, so that a name can't
 * resolve to a public address when it is checked and to a private one when it is used. Redirects are checked in the
 * same way.
 *
 * @param openResolver opens what resolves one name, but for hosts that the operator has named: those are looked up as
 * the system does it. A resolver knows only the name servers that the system had when it was opened.
 */
export function createGuardedRequest(
  allowed: AllowedHosts,
  openResolver: () => dns.Resolver = () => new dns.Resolver(dnsLimits),
): GuardedRequest {
  return async (url, init) => {
    let at = url;
    for (let redirects = 0; ; redirects += 1) {
      const authorization = at.origin === url.origin ? init.authorization : undefined;
      const response = await requestOnce(allowed, openResolver, at, { ...init, authorization });
      const { location } = response.headers;
      if (location === undefined || ![301, 302, 303, 307, 308].includes(response.status)) return response;
      // A body that is left unread keeps its connection, and there are only a few of them to a server.
      discard(response);
      if (redirects === maxRedirects) throw new Error(`${url.host} redirected too often`);
      at = new URL(location, at);
    }
  };
}

function requestOnce(
  allowed: AllowedHosts,
  openResolver: () => dns.Resolver,
  url: URL,
  init: GuardedInit,
): Promise<GuardedResponse> {
  const { method = "GET", headers, authorization, connections, signal } = init;
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
    const resolver = openResolver();
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
        method,
        agent: (secure ? connections?.https : connections?.http) ?? false,
        lookup: guardedLookup,
        signal,
        timeout: idleMs,
        headers: { "user-agent": "sandgate", ...headers, ...(authorization && { authorization }) },
      },
      (response) => resolve({ status: response.statusCode ?? 0, headers: response.headers, body: response, url }),
    );
    request.on("timeout", () => request.destroy(new Error(`${url.host} has sent nothing for ${idleMs / 1000} s`)));
    request.on("error", reject);
    request.end();
  });
}
