import { readFile } from "node:fs/promises";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Ipv4Network } from "../isolation/ipv4-network.ts";

/** A network that a host reaches through one of its devices. */
export interface Route extends Ipv4Network {
  device: string;
}

/** What this host routes somewhere, the default route aside. */
export async function readRoutes(): Promise<Route[]> {
  return parseRoutes(await readTable("route"));
}

/**
 * The names of the network interfaces where this process is. /sys may show a container those of its host instead, and
 * Node.js leaves out those that are down.
 */
export async function readInterfaces(): Promise<string[]> {
  const lines = (await readTable("dev")).split("\n");
  return lines.flatMap((line) => /^ *(\S+):/.exec(line)?.[1] ?? []);
}

/** Empty on a system that isn't Linux. */
async function readTable(name: string): Promise<string> {
  return readFile(`/proc/net/${name}`, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return "";
    throw new DomainError("RUNTIME_UNAVAILABLE", "The host's network can't be read.", { cause: error });
  });
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
