import { createHash } from "node:crypto";
import type { Subnet } from "./subnets.ts";

/** Names on the engine's host, which several installations may share. */
export interface HostNames {
  /** The prefix of the installation's bridges. An interface's name has 15 characters at most. */
  bridgePrefix: string;
  /** The prefix of the firewall's chains. */
  chainPrefix: string;
  /** The prefix of the kernel's tables of flows. */
  tablePrefix: string;
  /** The parent of all sandboxes' control groups, without what a driver adds. */
  controlGroup: string;
  /** The prefix of the volumes that bring the helper into sandboxes. */
  helperVolumePrefix: string;
  networkOf(subnet: Subnet): string;
  bridgeOf(subnet: Subnet): string;
}

/** The names of an installation. They follow from its id, so that all its processes find what one of them created. */
export function hostNamesOf(installationId: string): HostNames {
  const id = shortHash(installationId);
  const bridgePrefix = `sg${id}-`;
  return {
    bridgePrefix,
    chainPrefix: `SANDGATE-${id}`,
    // `sg${id}` is that of a version with rules in another table. Rolled back to, it would count what is counted here again.
    tablePrefix: `sg${id}m`,
    controlGroup: `sandgate${id}`,
    helperVolumePrefix: `sandgate-${id}-helper-`,
    networkOf: (subnet) => `sandgate-${id}-${suffixOf(subnet)}`,
    bridgeOf: (subnet) => `${bridgePrefix}${suffixOf(subnet)}`,
  };
}

/** A number below `count` that follows from a name. */
export function hashBelow(name: string, count: number): number {
  return createHash("sha256").update(name).digest().readUInt32BE() % count;
}

/** Five of 36 characters. */
function shortHash(text: string): string {
  return hashBelow(text, 36 ** 5)
    .toString(36)
    .padStart(5, "0");
}

/** A subnet's first address, in seven of 36 characters. */
function suffixOf({ first }: Subnet): string {
  return first.toString(36).padStart(7, "0");
}
