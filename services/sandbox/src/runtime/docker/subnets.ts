import { isIPv4 } from "node:net";
import { isDenied } from "../isolation/denied-ranges.ts";
import { formatNetwork, type Ipv4Network, overlaps, sizeOf, toAddress, toNetwork } from "../isolation/ipv4-network.ts";

/** For benchmarks between networks (RFC 2544), so hardly anybody routes it. */
export const defaultSubnetRange = "198.18.0.0/15";

/** The largest subnet of a network of sandboxes: 253 of them, besides the gateway. */
const subnetBits = 24;
const minRangeBits = 8;

/** Addresses of a subnet that no sandbox has: its own, its gateway's, and the one for broadcasts. */
const reservedAddresses = 3;

/** The addresses of one network of sandboxes. */
export type Subnet = Ipv4Network;

/**
 * The subnets that a range `address/bits` is cut into: of 24 bits, or the range itself when it is smaller. Throws an
 * Error that says what is wrong with it.
 */
export function parseSubnetRange(text: string): Subnet[] {
  const [address = "", length = "", ...rest] = text.split("/");
  const bits = Number(length);
  if (!isIPv4(address) || !/^\d{1,2}$/.test(length) || rest.length > 0) {
    throw new Error(`"${text}" is not an IPv4 network, address/bits`);
  }
  if (bits < minRangeBits || bits > 30)
    throw new Error(`"${text}" has a prefix that is not from ${minRangeBits} to 30`);
  const range = toNetwork(text);
  if (range.first % sizeOf(range) !== 0) throw new Error(`"${text}" has bits set beyond its prefix`);
  const last = toAddress(range.first + sizeOf(range) - 1);
  if (!isDenied(address) || !isDenied(last)) throw new Error(`"${text}" is not in a private range`);
  const cut = { first: range.first, bits: Math.max(bits, subnetBits) };
  return Array.from({ length: sizeOf(range) / sizeOf(cut) }, (_, index) => ({
    first: cut.first + index * sizeOf(cut),
    bits: cut.bits,
  }));
}

/** The subnets of several ranges. Throws an Error for none, and for ranges that overlap. */
export function parseSubnetRanges(texts: readonly string[]): Subnet[] {
  const subnets = texts.flatMap(parseSubnetRange).sort((a, b) => a.first - b.first);
  const twice = subnets.find((subnet, index) => index > 0 && overlaps(subnets[index - 1] ?? subnet, subnet));
  if (twice) throw new Error(`${formatNetwork(twice)} is named twice`);
  if (subnets.length === 0) throw new Error("there is no network to take addresses from");
  return subnets;
}

/** How many sandboxes a subnet has addresses for. */
export function capacityOf(subnet: Subnet): number {
  return sizeOf(subnet) - reservedAddresses;
}
