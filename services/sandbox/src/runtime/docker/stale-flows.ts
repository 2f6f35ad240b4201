import { networkInterfaces } from "node:os";
import { type Engine, inspectNetwork } from "@sandgate/docker-engine/client";
import { messageOf } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import { runProgram } from "./programs.ts";

const timeoutMs = 10_000;
const missingStatus = 127;
/** conntrack ends with status 1 when there was nothing to delete, too. */
const nothingDeleted = /\b0 flow entries have been deleted/;

/**
 * Connections and UDP flows that outlived their sandbox. The kernel forgets them only once the other side is silent, and
 * the engine leaves those that it translates. The next sandbox on the address would have them count as its own, and be
 * reached by them.
 */
export interface StaleFlows {
  /**
   * Ends those of a network's addresses that no container has, before one is started on it. Throws the engine's error.
   */
  endUnused(networkName: string): Promise<EndFlows>;
}

/** Ends those of the address that a container got, where another had it until then. Never rejects. */
export type EndFlows = (address: string) => Promise<void>;

/** Where the program conntrack is missing or fails, this is warned of once, and nothing is ended. */
export function createStaleFlows(o: { engine: Engine; logger: Logger }): StaleFlows {
  let loggedReason: string | undefined;

  /** Whether it succeeded. */
  async function attempt(work: () => Promise<void>): Promise<boolean> {
    const reason = await work().then(() => undefined, messageOf);
    if (reason !== undefined && reason !== loggedReason) {
      o.logger.warn(
        { reason },
        "a sandbox may inherit connections of one that had its address before: install the program conntrack, and run Sandgate as root",
      );
    }
    loggedReason = reason;
    return reason === undefined;
  }

  return {
    async endUnused(networkName) {
      const { Containers: containers, IPAM: ipam } = await inspectNetwork(o.engine, networkName);
      const used = new Set(Object.values(containers ?? {}).map(({ IPv4Address: address }) => address.split("/")[0]));
      // By which readiness is probed.
      const own = new Set(Object.values(networkInterfaces()).flatMap((all) => all?.map(({ address }) => address)));
      const subnet = ipam?.Config?.[0]?.Subnet;
      const areEnded = await attempt(async () => {
        const sources = subnet === undefined ? [] : await listSources(subnet);
        for (const source of sources) {
          if (!used.has(source) && !own.has(source)) await endFrom(source);
        }
      });
      return async (address) => {
        // It may have connections of its own by now, which end as well.
        if (!areEnded || used.has(address)) await attempt(() => endFrom(address));
      };
    },
  };
}

/** The addresses of a subnet that have opened something that the kernel still knows. */
async function listSources(subnet: string): Promise<Set<string>> {
  const listed = await runConntrack(["-L", "--orig-src", subnet]);
  return new Set(listed.split("\n").flatMap((line) => / src=(\S+)/.exec(line)?.[1] ?? []));
}

async function endFrom(address: string): Promise<void> {
  await runConntrack(["-D", "--orig-src", address]);
}

async function runConntrack(args: readonly string[]): Promise<string> {
  const { status, stdout, stderr } = await runProgram("conntrack", args, { timeoutMs });
  if (status === missingStatus) throw new Error("conntrack is not installed");
  if (status !== 0 && !nothingDeleted.test(stderr))
    throw new Error(stderr.trim() || `conntrack ended with status ${status}`);
  return stdout;
}
