import { type AllowedHosts, isPrivateHost } from "./allowed-hosts.ts";
import { dockerHub } from "./reference.ts";

export interface RegistryAddress {
  /** host[:port] */
  readonly host: string;
  /** Undefined: https, and http after it only where the operator has named the host. */
  readonly scheme: "https" | "http" | undefined;
}

/** Names of Docker Hub's API, which serves the images of docker.io. */
const dockerHubHosts = ["index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"];

const urlPattern =
  /^(?:(https?):\/\/)?((?:[a-z0-9]+(?:-+[a-z0-9]+)*(?:\.[a-z0-9]+(?:-+[a-z0-9]+)*)*|\[[a-f0-9:]+\]))(?::(\d{1,5}))?$/i;

/** Parses `[http(s)://]host[:port]`; undefined for any other text. The host is as images at the registry name it. */
export function parseRegistryUrl(url: string): RegistryAddress | undefined {
  const [, scheme, name, port] = urlPattern.exec(url) ?? [];
  if (name === undefined || !isPossibleHost(port === undefined ? name : `${name}:${port}`)) return undefined;
  const used = scheme === undefined ? undefined : scheme.toLowerCase() === "http" ? "http" : "https";
  const host = canonicalHost(port === undefined ? name : `${name}:${port}`, defaultPortOf(used));
  return { host, scheme: used };
}

/** The canonical form of a host[:port], by which two can be compared. */
export function canonicalHost(host: string, defaultPort = 443): string {
  const lower = host.toLowerCase();
  const short = lower.endsWith(`:${defaultPort}`) ? lower.slice(0, -`:${defaultPort}`.length) : lower;
  return dockerHubHosts.includes(short) ? dockerHub : short;
}

/**
 * Whether an image with this host[:port] in its name is at the registry. Its name may have the default port, also that
 * of https, which a host without a dot is given (`parseReference`).
 */
export function isAtRegistry(imageHost: string, { host, scheme }: RegistryAddress): boolean {
  return [443, defaultPortOf(scheme)].some((port) => canonicalHost(imageHost, port) === host);
}

/** Why a registry may not be used, by its URL alone; undefined: it may, as far as that tells. */
export function findUrlIssue(address: RegistryAddress, allowed: AllowedHosts): string | undefined {
  const named = allowed.names(withPort(address));
  if (address.scheme === "http" && !named) return "must use https: an operator has not allowed this host without TLS";
  if (isPrivateHost(address.host) && !named) return "names a private address that an operator has not allowed";
  return undefined;
}

/** Why an image may not be at this host, by its name alone; undefined: it may. */
export function findHostIssue(host: string, allowed: AllowedHosts): string | undefined {
  if (!isPossibleHost(host)) return "names a registry at an address that can't be valid";
  const address = withPort({ host, scheme: undefined });
  return isPrivateHost(host) && !allowed.names(address)
    ? `names a registry at ${address}, a private address that an operator has not allowed`
    : undefined;
}

/** Whether something could be at this host[:port]: the patterns accept any port, and malformed addresses. */
function isPossibleHost(host: string): boolean {
  return URL.canParse(`https://${host}`) && !/:0+$/.test(host);
}

function withPort({ host, scheme }: RegistryAddress): string {
  return /:\d+$/.test(host) ? host : `${host}:${defaultPortOf(scheme)}`;
}

function defaultPortOf(scheme: RegistryAddress["scheme"]): number {
  return scheme === "http" ? 80 : 443;
}
