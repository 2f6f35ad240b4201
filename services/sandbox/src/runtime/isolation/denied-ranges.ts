import { BlockList } from "node:net";

/**
 * What no sandbox may reach (RFC 6890): this network, private, CGNAT, loopback, link-local, benchmarking, multicast,
 * reserved. 168.63.129.16 is a public address at which Azure serves its machines, with their secrets.
 */
export const deniedRanges = [
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "168.63.129.16/32",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "224.0.0.0/4",
  "240.0.0.0/4",
];

/** Whether a sandbox may not reach an address, whatever the settings say. */
export function isDenied(address: string): boolean {
  return denied.check(address);
}

const denied = new BlockList();
for (const range of deniedRanges) {
  const [address = "", bits] = range.split("/");
  denied.addSubnet(address, Number(bits));
}
