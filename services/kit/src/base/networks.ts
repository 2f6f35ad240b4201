import ipaddr from "ipaddr.js";

/** A network that an address belongs to. */
export interface Network {
  /** In CIDR notation; a single IPv4 address has no prefix length. */
  name: string;
  /** How many times the limit of one address the whole network has. */
  share: number;
}

/**
 * Returns the networks that an address counts for, the narrowest first. For IPv6 these are the /64, which one host can
 * own, and the /56 and /48, which one customer can own. For IPv4 they are the address and its /24. A port that a proxy
 * appends is ignored, because a client can change it. Everything that is not an address counts as one network.
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
