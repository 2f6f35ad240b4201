import { isIPv4 } from "node:net";

/** A destination outside, for TCP and UDP. */
export interface Destination {
  /** An IPv4 network, `address/bits`. */
  network: string;
  /** Undefined: all ports. */
  port: number | undefined;
}

/** What sandboxes may reach outside, on either runtime. */
export interface EgressPolicy {
  /** Resolvers of sandboxes, as `checkResolvers` takes them: one in a closed range is open on port 53 only. */
  nameservers: readonly string[];
  /** Whether TCP port 25 is open. */
  smtp: boolean;
  /** Closed besides the private ranges; counts before `allow`. */
  deny: readonly Destination[];
  /** Open although it is private. */
  allow: readonly Destination[];
}

/** The shortest prefix of an allowed network, so that a typo can't open all that is private. */
const minAllowedBits = 8;

/** A pod takes no more, and the C library reads no more. */
const maxResolvers = 3;

/**
 * Returns the addresses of resolvers as they are. Throws an Error unless they are one to three IPv4 addresses, none of
 * them a loopback address, which would be the sandbox's own.
 */
export function checkResolvers(addresses: readonly string[]): readonly string[] {
  const unusable = addresses.find((address) => !isIPv4(address) || address.startsWith("127."));
  if (unusable !== undefined) throw new Error(`"${unusable}" is not an IPv4 address that sandboxes can reach`);
  if (addresses.length < 1 || addresses.length > maxResolvers) throw new Error("must be one to three addresses");
  return addresses;
}

/** Reads `address[/bits][:port]`. Throws an Error that says what is wrong with it. */
export function parseDestination(text: string): Destination {
  const {
    address = "",
    bits = "32",
    port,
  } = /^(?<address>[\d.]+)(?:\/(?<bits>\d{1,2}))?(?::(?<port>\d{1,5}))?$/.exec(text)?.groups ?? {};
  if (!isIPv4(address)) throw new Error(`"${text}" is not an IPv4 address or network with an optional port`);
  if (Number(bits) > 32) throw new Error(`"${text}" has a prefix longer than 32 bits`);
  if (port !== undefined && (Number(port) < 1 || Number(port) > 65_535)) {
    throw new Error(`"${text}" has a port that is not from 1 to 65535`);
  }
  return { network: `${address}/${Number(bits)}`, port: port === undefined ? undefined : Number(port) };
}

/** Reads a destination that is opened, as `parseDestination` does. */
export function parseAllowedDestination(text: string): Destination {
  const destination = parseDestination(text);
  if (Number(destination.network.split("/")[1]) < minAllowedBits) {
    throw new Error(`"${text}" is too wide to be allowed: a prefix has ${minAllowedBits} bits or more`);
  }
  return destination;
}
