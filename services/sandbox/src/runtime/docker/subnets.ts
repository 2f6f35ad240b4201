import { readFile } from "node:fs/promises";
import { isIPv4 } from "node:net";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { isDenied } from "../isolation/denied-ranges.ts";

/** For benchmarks between networks (RFC 2544), so hardly anybody routes it. */
export const defaultSubnetRange = "198.18.0.0/15";

/** The largest subnet of a network of sandboxes: 253 of them, besides the gateway. */
const subnetBits = 24;
const minRangeBits = 8;

/** Addresses of a subnet that no sandbox has: its own, its gateway's, and the one for broadcasts. */
const reservedAddresses = 3;

/** An IPv4 network. */
export interface Subnet {
  /** Its first address as a number. */
  first: number;
  bits: number;
}

/**
 * The subnets that a range `address/bits` is cut into: of 24 bits, or the range itself when it is smaller. Throws an Error that
 * says what is wrong with it.
 */
export function parseSubnetRange(text: string): Subnet[] {
  const [address = "", length = "", ...rest] = text.split("/");
  const bits = Number(length);
  if (!isIPv4(address) || !/^\d{1,2}$/.test(length) || rest.length > 0) {
    throw new Error(`"${text}" is not an IPv4 network, address/bits`);
  }
  if (bits < minRangeBits || bits > 30)
    throw new Error(`"${text}" has a prefix that is not from ${minRangeBits} to 30`);
  const range = { first: toNumber(address), bits };
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
  if (twice) throw new Error(`${formatSubnet(twice)} is named twice`);
  if (subnets.length === 0) throw new Error("there is no network to take addresses from");
  return subnets;
}

export function formatSubnet({ first, bits }: Subnet): string {
  return `${toAddress(first)}/${bits}`;
}

/** How many sandboxes a subnet has addresses for. */
export function capacityOf(subnet: Subnet): number {
  return sizeOf(subnet) - reservedAddresses;
}

export function overlaps(a: Subnet, b: Subnet): boolean {
  return a.first < b.first + sizeOf(b) && b.first < a.first + sizeOf(a);
}

/** A network that a host reaches through one of its devices. */
export interface Route extends Subnet {
  device: string;
}

/** What this host routes somewhere, the default route aside. Nothing where there is no such table. */
export async function readRoutes(): Promise<Route[]> {
  const table = await readFile("/proc/net/route", "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return "";
    throw new DomainError("RUNTIME_UNAVAILABLE", "The host's routes can't be read.", { cause: error });
  });
  return parseRoutes(table);
}

/** Reads /proc/net/route: addresses are in hexadecimal, the last byte first. */
export function parseRoutes(table: string): Route[] {
  return table
    .split("\n")
    .slice(1)
    .map((line) => line.split("\t"))
    .map(([device = "", destination = "", , , , , , mask = ""]) => ({
      device,
      first: reverseHex(destination),
      bits: reverseHex(mask).toString(2).replaceAll("0", "").length,
    }))
    .filter(({ first, bits }) => bits > 0 && !Number.isNaN(first));
}

function reverseHex(text: string): number {
  return Number.parseInt((text.match(/../g) ?? []).reverse().join(""), 16);
}

function sizeOf({ bits }: Pick<Subnet, "bits">): number {
  return 2 ** (32 - bits);
}

function toNumber(address: string): number {
  return address.split(".").reduce((number, byte) => number * 256 + Number(byte), 0);
}

function toAddress(number: number): string {
  return [24, 16, 8, 0].map((shift) => Math.floor(number / 2 ** shift) % 256).join(".");
}
