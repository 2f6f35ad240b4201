/** An IPv4 network. */
export interface Ipv4Network {
  /** Its first address as a number. */
  first: number;
  /** The length of its prefix. */
  bits: number;
}

/** Reads `address/bits`, of which both parts are known to be valid. An address alone is a network of 32 bits. */
export function toNetwork(text: string): Ipv4Network {
  const [address = "", bits = "32"] = text.split("/");
  return { first: address.split(".").reduce((number, byte) => number * 256 + Number(byte), 0), bits: Number(bits) };
}

export function toAddress(number: number): string {
  return [24, 16, 8, 0].map((shift) => Math.floor(number / 2 ** shift) % 256).join(".");
}

export function formatNetwork({ first, bits }: Ipv4Network): string {
  return `${toAddress(first)}/${bits}`;
}

/** How many addresses a network has. */
export function sizeOf({ bits }: Pick<Ipv4Network, "bits">): number {
  return 2 ** (32 - bits);
}

export function overlaps(a: Ipv4Network, b: Ipv4Network): boolean {
  return a.first < b.first + sizeOf(b) && b.first < a.first + sizeOf(a);
}

/** Whether `inner` is `outer` or a part of it. */
export function contains(outer: Ipv4Network, inner: Ipv4Network): boolean {
  return (
    inner.bits >= outer.bits && Math.floor(inner.first / sizeOf(outer)) === Math.floor(outer.first / sizeOf(outer))
  );
}
