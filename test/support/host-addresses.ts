import { networkInterfaces } from "node:os";

/**
 * This host's IPv4 addresses, but for those of containers' ends and of the bridges of platforms and test clusters,
 * which come and go.
 */
export function listHostAddresses(): string[] {
  return Object.entries(networkInterfaces())
    .filter(([name]) => !/^(veth|sg)/.test(name))
    .flatMap(([, addresses]) => addresses ?? [])
    .filter(({ family, internal }) => family === "IPv4" && !internal)
    .map(({ address }) => address);
}
