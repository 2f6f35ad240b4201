import { access, readFile, writeFile } from "node:fs/promises";
import { BlockList, isIPv4 } from "node:net";
import { callEngine, type Engine } from "@sandgate/docker-engine/client";
import { toRuntimeUnavailable } from "@sandgate/docker-engine/errors";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { runIptables } from "./iptables.ts";
import { bridgeName, ensureNetwork } from "./network.ts";

/**
 * What no sandbox may reach (RFC 6890): this network, private, CGNAT, loopback, link-local, benchmarking, multicast, reserved.
 * 168.63.129.16 is a public address at which Azure serves its machines, with their secrets.
 */
const deniedRanges = [
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

const inputChain = "SANDGATE-INPUT";
const forwardChain = "SANDGATE-FORWARD";

const commitAttempts = 3;

/** For how long rules that someone else removed can go unnoticed while sandboxes are created. */
export const recheckMs = 30_000;

/** Keeps the firewall of the engine's host such that sandboxes reach the public internet and nothing else. */
export interface Isolation {
  /** Adds what is missing. Throws ISOLATION_UNAVAILABLE with the reason, or RUNTIME_UNAVAILABLE. */
  verify(): Promise<void>;
  /** Like `verify`, unless that succeeded in the last 30 s. */
  verifyRecent(): Promise<void>;
}

/** The rules of one address family: chains of our own, replaced as a whole, and the jumps to them, first in their chains. */
interface Firewall {
  command: "iptables" | "ip6tables";
  chains: Record<string, readonly string[]>;
  jumps: readonly { chain: string; rule: string }[];
}

/**
 * `nameservers` are the sandboxes' resolvers (IPv4): one in a denied range is allowed on port 53 only.
 * With `enforce` false only the network is created.
 *
 * INPUT: a sandbox reaches nothing on the host, whatever the address; it may only answer connections that the host opened,
 * which is how readiness is probed. DOCKER-USER, the chain that Docker reserves for others and evaluates before its own,
 * drops the denied ranges and what would return to the bridge; enable_icc=false keeps neighbours apart a second time. IPv6
 * is off in the network, and dropped as well. Other containers never match, since every rule names our bridge.
 */
export function createIsolation(o: {
  engine: Engine;
  enforce: boolean;
  ociRuntime: string | undefined;
  nameservers: readonly string[];
}): Isolation {
  let verifiedAt = Number.NEGATIVE_INFINITY;
  let running: Promise<void> | undefined;

  async function verifyOnce(): Promise<void> {
    verifiedAt = Number.NEGATIVE_INFINITY;
    try {
      if (o.enforce) await requireEngineFeatures(o.engine, o.ociRuntime);
      await ensureNetwork(o.engine);
    } catch (error) {
      throw toRuntimeUnavailable(error);
    }
    if (o.enforce) await enforce(o.nameservers);
    verifiedAt = performance.now();
  }

  function verify(): Promise<void> {
    running ??= verifyOnce().finally(() => {
      running = undefined;
    });
    return running;
  }

  return {
    verify,
    async verifyRecent() {
      if (performance.now() - verifiedAt > recheckMs) await verify();
    },
  };
}

function refuse(message: string, hint?: string, cause?: unknown): DomainError {
  return new DomainError("ISOLATION_UNAVAILABLE", message, { hint, cause });
}

async function requireEngineFeatures(engine: Engine, ociRuntime: string | undefined): Promise<void> {
  const info = await callEngine(() => engine.info());
  if (!info.MemoryLimit || !info.PidsLimit || !info.CpuCfsQuota) {
    throw refuse(
      "The engine can't limit memory, processes or CPU.",
      "Enable the memory, pids and cpu cgroup controllers.",
    );
  }
  if (ociRuntime !== undefined && !(ociRuntime in info.Runtimes)) {
    throw refuse(`The engine has no runtime "${ociRuntime}".`, "Add it to the engine's daemon.json.");
  }
  const security: string[] = info.SecurityOptions ?? [];
  if (!security.some((option) => option.startsWith("name=seccomp") && !option.includes("profile=unconfined"))) {
    throw refuse("The engine runs containers without a seccomp profile.");
  }
}

async function enforce(nameservers: readonly string[]): Promise<void> {
  await access(`/sys/class/net/${bridgeName}`).catch((cause: unknown) => {
    throw refuse(
      `The bridge ${bridgeName} is not on this machine, so its firewall can't be set from here.`,
      "Run Sandgate on the engine's host, in a container with the host's network.",
      cause,
    );
  });
  await enableBridgeFilter();
  await applyRules(ipv4Firewall(nameservers));
  if (await exists("/proc/net/if_inet6")) await applyRules(ipv6Firewall);
}

/** Traffic between two ports of a bridge passes iptables only with this on. The engine sets it for enable_icc=false too. */
async function enableBridgeFilter(): Promise<void> {
  const file = "/proc/sys/net/bridge/bridge-nf-call-iptables";
  try {
    if ((await readFile(file, "utf8")).trim() !== "1") await writeFile(file, "1");
  } catch (cause) {
    throw refuse("The host does not filter traffic between containers of one bridge.", "Load br_netfilter.", cause);
  }
}

function ipv4Firewall(nameservers: readonly string[]): Firewall {
  const denied = new BlockList();
  for (const range of deniedRanges) {
    const [address = "", prefix] = range.split("/");
    denied.addSubnet(address, Number(prefix));
  }
  const allowed = nameservers.filter((address) => isIPv4(address) && denied.check(address));
  return {
    command: "iptables",
    chains: {
      [inputChain]: ["-m conntrack --ctstate RELATED,ESTABLISHED --ctdir REPLY -j ACCEPT", "-j DROP"],
      [forwardChain]: [
        ...allowed.flatMap((address) =>
          ["udp", "tcp"].map((p) => `-d ${address}/32 -p ${p} -m ${p} --dport 53 -j RETURN`),
        ),
        ...deniedRanges.map((range) => `-d ${range} -j DROP`),
        `-o ${bridgeName} -j DROP`,
      ],
    },
    jumps: [
      { chain: "INPUT", rule: `-i ${bridgeName} -j ${inputChain}` },
      { chain: "DOCKER-USER", rule: `-i ${bridgeName} -j ${forwardChain}` },
    ],
  };
}

const ipv6Firewall: Firewall = {
  command: "ip6tables",
  chains: {},
  jumps: ["INPUT", "FORWARD"].map((chain) => ({ chain, rule: `-i ${bridgeName} -j DROP` })),
};

/** Replaces our chains and moves our jumps to the front, all in one commit, so that there is no moment without rules. */
async function applyRules(firewall: Firewall): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const current = (await runIptables(firewall.command, ["-S"])).split("\n");
    requireEngineChains(firewall, current);
    const lines = ["*filter"];
    for (const name of Object.keys(firewall.chains)) lines.push(`:${name} - [0:0]`);
    for (const [name, rules] of Object.entries(firewall.chains))
      lines.push(...rules.map((rule) => `-A ${name} ${rule}`));
    for (const { chain, rule } of firewall.jumps) {
      const inChain = current.filter((line) => line.startsWith(`-A ${chain} `));
      const ours = inChain.filter((line) => line === `-A ${chain} ${rule}`);
      if (inChain[0] === ours[0] && ours.length === 1) continue;
      lines.push(...ours.map(() => `-D ${chain} ${rule}`), `-I ${chain} 1 ${rule}`);
    }
    lines.push("COMMIT", "");
    try {
      await runIptables(`${firewall.command}-restore`, ["--noflush"], lines.join("\n"));
      return;
    } catch (error) {
      // Another process may have moved the jumps between the listing and the commit.
      if (attempt === commitAttempts) throw error;
    }
  }
}

function requireEngineChains(firewall: Firewall, current: readonly string[]): void {
  if (!firewall.jumps.some(({ chain }) => chain === "DOCKER-USER")) return;
  if (current.includes("-A FORWARD -j DOCKER-USER")) return;
  throw refuse(
    `${firewall.command} shows no DOCKER-USER chain in use, so the engine's traffic can't be filtered.`,
    "Run the engine with its iptables option on, restart it if its rules were flushed, and use the same iptables backend.",
  );
}

async function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  );
}
