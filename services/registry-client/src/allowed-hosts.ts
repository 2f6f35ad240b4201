import { list } from "@sandgate/kit/base/settings";
import ipaddr from "ipaddr.js";

/** The setting that every process which asks registries has. */
export const registryAllowSetting = list("SANDGATE_REGISTRY_ALLOW", {
  default: [],
  doc: "Registries that may be at private addresses or without TLS: a comma-separated list of host[:port] or CIDR",
});

/** Which registries may be reached at private addresses, and without TLS: those an operator has named. */
export interface AllowedHosts {
  /** Whether the operator named this host[:port] or, where it is an address, its network. */
  names(host: string): boolean;
  /** Whether this host may be reached at this address: named by the operator, or public. */
  permits(host: string, address: string): boolean;
}

/**
 * Reads the entries of SANDGATE_REGISTRY_ALLOW.
 *
 * @param entries each a host (any port), host:port or a CIDR; IPv6 addresses with a port stand in brackets
 * @throws an Error that names the first entry that is none of these
 */
export function readAllowedHosts(entries: readonly string[]): AllowedHosts {
  const networks = entries.filter((entry) => ipaddr.isValidCIDR(entry)).map((entry) => ipaddr.parseCIDR(entry));
  const hosts = entries.filter((entry) => !ipaddr.isValidCIDR(entry)).map(splitHost);

  function isInNetwork(address: string): boolean {
    if (!ipaddr.isValid(address)) return false;
    const parsed = ipaddr.process(address);
    return networks.some(([network, bits]) => network.kind() === parsed.kind() && parsed.match(network, bits));
  }

  function names(host: string): boolean {
    const { name, port } = splitHost(host);
    return isInNetwork(name) || hosts.some((allowed) => allowed.name === name && (allowed.port ?? port) === port);
  }

  return {
    names,
    permits: (host, address) => isPublic(address) || isInNetwork(address) || names(host),
  };
}

/** Whether this is the name or the literal address of something that is not on the public internet. */
export function isPrivateHost(host: string): boolean {
  const { name } = splitHost(host);
  if (ipaddr.isValid(name)) return !isPublic(name);
  return name === "localhost" || name.endsWith(".localhost");
}

/** The only IPv6 addresses assigned for the internet (RFC 4291, section 2.4); some are reserved. */
const globalUnicast = ipaddr.IPv6.parseCIDR("2000::/3");

/** A network's DNS64 and NAT64 give IPv4 addresses this prefix (RFC 6052, section 2.1). */
const translatedIpv4 = ipaddr.IPv6.parseCIDR("64:ff9b::/96");

/** Whether this is a public address: not private, loopback, link-local, shared or reserved. */
function isPublic(address: string): boolean {
  if (!ipaddr.isValid(address)) return false;
  const written = ipaddr.process(address);
  const isTranslated = written instanceof ipaddr.IPv6 && written.match(translatedIpv4);
  const parsed = isTranslated ? new ipaddr.IPv4(written.toByteArray().slice(-4)) : written;
  return parsed.range() === "unicast" && (parsed instanceof ipaddr.IPv4 || parsed.match(globalUnicast));
}

/** Splits host[:port]; brackets around an IPv6 address go. */
function splitHost(host: string): { name: string; port: number | undefined } {
  if (ipaddr.IPv6.isValid(host)) return { name: host.toLowerCase(), port: undefined };
  const match = /^(?:\[(?<address>[^\]]+)\]|(?<name>[^:]+))(?::(?<port>\d{1,5}))?$/.exec(host);
  const name = match?.groups?.address ?? match?.groups?.name;
  if (name === undefined) throw new Error(`"${host}" is not a host, host:port or network`);
  const port = match?.groups?.port;
  return { name: name.toLowerCase(), port: port === undefined ? undefined : Number(port) };
}
