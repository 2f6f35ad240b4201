import { networkInterfaces } from "node:os";
import { type Engine, inspectNetwork } from "@sandgate/docker-engine/client";
import { messageOf } from "@sandgate/kit/base/domain-error";
import { createStateLog, type Logger } from "@sandgate/kit/base/logging";
import { toNetwork } from "../isolation/ipv4-network.ts";
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
   * Ends those of the address of a network that its next container is likely to get, before one is started on it. Throws
   * the engine's error.
   */
  endUnused(networkName: string): Promise<EndFlows>;
}

/** Ends those of the address that a container got, where another had it until then. Never rejects. */
export type EndFlows = (address: string) => Promise<void>;

/** Where the program conntrack is missing or fails, this is warned of once, and nothing is ended. */
export function createStaleFlows(o: { engine: Engine; logger: Logger }): StaleFlows {
  // For each question the kernel goes through all of its connections, which takes a second where there are many.
  const shareNext = createSharedRuns(endNext);
  /** Addresses that were made free for a container which may have its own by now, or will. */
  const expected = new Set<string>();
  const tellProblem = createStateLog(
    o.logger,
    "a sandbox may inherit connections of one that had its address before: the program conntrack can't end them",
  );

  /** Whether it succeeded. */
  async function attempt(work: () => Promise<void>): Promise<boolean> {
    const reason = await work().then(() => undefined, messageOf);
    tellProblem(reason);
    return reason === undefined;
  }

  /**
   * Ends those of the addresses that so many starts are given: the engine takes the lowest. Returns whether an address may
   * still have some.
   */
  async function endNext(networkName: string, starts: number): Promise<(address: string) => boolean> {
    const subnet = (await inspectNetwork(o.engine, networkName)).IPAM?.Config?.[0]?.Subnet;
    let used = new Set<string>();
    // By which readiness is probed.
    const own = new Set(Object.values(networkInterfaces()).flatMap((all) => all?.map(({ address }) => address)));
    const left = new Set<string>();
    const areEnded = await attempt(async () => {
      const sources = subnet === undefined ? [] : [...(await listSources(subnet))];
      // After the list: what a container has opened meanwhile is its own.
      const { Containers: containers } = await inspectNetwork(o.engine, networkName);
      used = new Set(Object.values(containers ?? {}).map(({ IPv4Address: address }) => address.replace(/\/.*/, "")));
      for (const address of used) expected.delete(address);
      const free = sources.filter((source) => !used.has(source) && !own.has(source));
      const order = free.toSorted((a, b) => toNetwork(`${a}/32`).first - toNetwork(`${b}/32`).first);
      const next = order.filter((source) => !expected.has(source)).slice(0, starts);
      for (const source of free) if (!next.includes(source)) left.add(source);
      for (const source of next) {
        expected.add(source);
        await endFrom(source);
      }
    });
    return (address) => !areEnded || used.has(address) || left.has(address);
  }

  return {
    async endUnused(networkName) {
      const mayHaveSome = await shareNext(networkName);
      return async (address) => {
        expected.delete(address);
        // It may have connections of its own by now, which end as well.
        if (mayHaveSome(address)) await attempt(() => endFrom(address));
      };
    },
  };
}

/**
 * Makes what runs the work of a key once at a time. All that come while it runs share the next run, which begins after
 * they came and is told how many they are.
 */
function createSharedRuns<T>(work: (key: string, callers: number) => Promise<T>): (key: string) => Promise<T> {
  const runs = new Map<string, { current: Promise<T>; next: Promise<T> | undefined; waiting: number }>();

  function begin(key: string, callers: number): Promise<T> {
    const run = { current: work(key, callers), next: undefined, waiting: 0 };
    runs.set(key, run);
    const end = () => {
      if (run.next === undefined) runs.delete(key);
    };
    run.current.then(end, end);
    return run.current;
  }

  return (key) => {
    const run = runs.get(key);
    if (run === undefined) return begin(key, 1);
    run.waiting += 1;
    const beginNext = () => begin(key, run.waiting);
    run.next ??= run.current.then(beginNext, beginNext);
    return run.next;
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
