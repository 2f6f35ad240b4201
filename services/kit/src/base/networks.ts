import ipaddr from "ipaddr.js";

/** A network that an address belongs to. */
export interface Network {
  /** In CIDR notation; a single IPv4 address has no prefix length. */
  name: string;
  /** How many times what one address may do all of the network may do together. */
  share: number;
}

/**
 * The networks that count for an address, the narrowest first. One host can have all of an IPv6 /64, one customer a /56 or a
 * /48, so each counts beside it; of IPv4 the address and its /24. Some proxies forward an address with a port, which is left
 * out because a client can change it. Everything that is not an address counts as one.
 */
export function networksOf(address: string): readonly [Network, ...Network[]] {
  const [, bracketed, plain] = /^(?:\[(.+)\]|(\d+(?:\.\d+){3}))(?::\d+)?$/.exec(address) ?? [];
  const host = bracketed ?? plain ?? address;
  if (!ipaddr.isValid(host)) return [{ name: "unknown", share: 1 }];
  const parsed = ipaddr.process(host);
  const within = (prefixLength: number, share: number): Network => {
    const bytes = parsed
      .toByteArray()
      .map((byte, i) => byte & (0xff << Math.min(8, Math.max(0, 8 * (i + 1) - prefixLength))));
    return { name: `${ipaddr.fromByteArray(bytes).toString()}/${prefixLength}`, share };
  };
  if (parsed.kind() === "ipv4") return [{ name: parsed.toString(), share: 1 }, within(24, 8)];
  return [within(64, 1), within(56, 4), within(48, 16)];
}
