import { access, readFile, writeFile } from "node:fs/promises";
import { BlockList, isIPv4 } from "node:net";
import { callEngine, type Engine } from "@sandgate/docker-engine/client";
import { toRuntimeUnavailable } from "@sandgate/docker-engine/errors";
import { DomainError, messageOf } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import type { Destination } from "./egress.ts";
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

/** New connections beyond the rate that a sandbox that was quiet may open at once, in seconds of the rate. */
const burstSeconds = 5;

/** After how long a kernel that refused the limits of connections is asked again. */
const limitsRetryMs = 600_000;

/** The engine's version since which its resolver can't be kept out of a container on a network of its own. */
const firstResolvingVersion = 26;

/** For how long rules that someone else removed can go unnoticed while sandboxes are created. */
export const recheckMs = 30_000;

/** Keeps the firewall of the engine's host such that sandboxes reach the public internet and nothing else. */
export interface Isolation {
  /** Adds what is missing. Throws ISOLATION_UNAVAILABLE with the reason, or RUNTIME_UNAVAILABLE. */
  verify(): Promise<void>;
  /** Like `verify`, unless that succeeded in the last 30 s. */
  verifyRecent(): Promise<void>;
}

/** What sandboxes may do on the network. */
export interface NetworkPolicy {
  /**
   * Resolvers of sandboxes (IPv4): one in a denied range is allowed on port 53 only.
   */
  nameservers: readonly string[];
  /** Connections and UDP flows that a sandbox may have at once, and open in a second. 0: no limit. */
  maxConnections: number;
  newConnectionsPerSecond: number;
  /** Whether TCP port 25 is open. */
  smtp: boolean;
  /** Closed besides the private ranges; counts before `allow`. */
  deny: readonly Destination[];
  /** Open although it is private. */
  allow: readonly Destination[];
}

/** The rules of one address family: chains of our own, replaced as a whole, and the jumps to them, first in their chains. */
interface Firewall {
  command: "iptables" | "ip6tables";
  chains: Record<string, readonly string[]>;
  jumps: readonly { chain: string; rule: string }[];
}

/**
 * With `enforce` false only the network is created.
 *
 * INPUT: a sandbox reaches nothing on the host, whatever the address; it may only answer connections that the host opened,
 * which is how readiness is probed. DOCKER-USER, the chain that Docker reserves for others and evaluates before its own,
 * drops the denied ranges and what would return to the bridge; enable_icc=false keeps neighbours apart a second time. IPv6
 * is off in the network, and dropped as well. Other containers never match, since every rule names our bridge. A kernel
 * without the matches that limit connections is warned of, and the other rules are set.
 */
export function createIsolation(o: {
  engine: Engine;
  enforce: boolean;
  ociRuntime: string | undefined;
  policy: NetworkPolicy;
  logger: Logger;
}): Isolation {
  const rules = createFirewallRules(o.policy, o.logger);
  let verifiedAt = Number.NEGATIVE_INFINITY;
  let toldOfResolver: string | undefined;
  let running: Promise<void> | undefined;

  function warnOfResolver(engine: EngineFeatures): void {
    const reason = resolverReason(engine);
    if (reason !== undefined && reason !== toldOfResolver) {
      o.logger.warn({ reason }, "the engine tells sandboxes the names and addresses of their neighbours");
    }
    toldOfResolver = reason;
  }

  async function verifyOnce(): Promise<void> {
    verifiedAt = Number.NEGATIVE_INFINITY;
    try {
      if (o.enforce) warnOfResolver(await requireEngineFeatures(o.engine, o.ociRuntime));
      await ensureNetwork(o.engine);
    } catch (error) {
      throw toRuntimeUnavailable(error);
    }
    if (o.enforce) await enforce(rules);
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

interface EngineFeatures {
  ServerVersion: string;
  LiveRestoreEnabled: boolean;
}

/** Why this engine gives containers its embedded resolver all the same (`containerOptionsOf`); undefined: it doesn't. */
export function resolverReason({
  ServerVersion: version,
  LiveRestoreEnabled: liveRestore,
}: EngineFeatures): string | undefined {
  if (Number.parseInt(version, 10) >= firstResolvingVersion) {
    return `version ${version} runs its resolver in every container; versions up to 25 need not`;
  }
  return liveRestore ? "with live-restore it starts its resolver in running containers when it restarts" : undefined;
}

async function requireEngineFeatures(engine: Engine, ociRuntime: string | undefined): Promise<EngineFeatures> {
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
  return info;
}

async function enforce(rules: FirewallRules): Promise<void> {
  await access(`/sys/class/net/${bridgeName}`).catch((cause: unknown) => {
    throw refuse(
      `The bridge ${bridgeName} is not on this machine, so its firewall can't be set from here.`,
      "Run Sandgate on the engine's host, in a container with the host's network.",
      cause,
    );
  });
  await enableBridgeFilter();
  await rules.apply();
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

function ipv4Firewall(policy: NetworkPolicy): Firewall {
  const denied = new BlockList();
  for (const range of deniedRanges) {
    const [address = "", prefix] = range.split("/");
    denied.addSubnet(address, Number(prefix));
  }
  const resolvers = policy.nameservers
    .filter((address) => isIPv4(address) && denied.check(address))
    .map((address) => ({ network: `${address}/32`, port: 53 }));
  return {
    command: "iptables",
    chains: {
      [inputChain]: ["-m conntrack --ctstate RELATED,ESTABLISHED --ctdir REPLY -j ACCEPT", "-j DROP"],
      [forwardChain]: [
        ...limitRules(policy),
        `-o ${bridgeName} -j DROP`,
        ...rulesFor(resolvers, "RETURN"),
        ...rulesFor(policy.deny, "DROP"),
        ...rulesFor(policy.allow, "RETURN"),
        ...(policy.smtp ? [] : ["-p tcp -m tcp --dport 25 -j DROP"]),
        ...deniedRanges.map((range) => `-d ${range} -j DROP`),
      ],
    },
    jumps: [
      { chain: "INPUT", rule: `-i ${bridgeName} -j ${inputChain}` },
      { chain: "DOCKER-USER", rule: `-i ${bridgeName} -j ${forwardChain}` },
    ],
  };
}

/** The rate is in the table's name, since the kernel keeps a table of the same name as it was. */
function limitRules({ maxConnections, newConnectionsPerSecond: rate }: NetworkPolicy): string[] {
  const rules: string[] = [];
  if (rate > 0) {
    const limit = `--hashlimit-above ${rate}/sec --hashlimit-burst ${rate * burstSeconds}`;
    rules.push(`-m hashlimit ${limit} --hashlimit-mode srcip --hashlimit-name sandgate${rate}`);
  }
  if (maxConnections > 0) {
    rules.push(`-m connlimit --connlimit-above ${maxConnections} --connlimit-mask 32 --connlimit-saddr`);
  }
  return rules.map((rule) => `-m conntrack --ctstate NEW ${rule} -j DROP`);
}

function rulesFor(destinations: readonly Destination[], verdict: "RETURN" | "DROP"): string[] {
  return destinations.flatMap(({ network, port }) =>
    port === undefined
      ? [`-d ${network} -j ${verdict}`]
      : ["udp", "tcp"].map((protocol) => `-d ${network} -p ${protocol} -m ${protocol} --dport ${port} -j ${verdict}`),
  );
}

const ipv6Firewall: Firewall = {
  command: "ip6tables",
  chains: {},
  jumps: ["INPUT", "FORWARD"].map((chain) => ({ chain, rule: `-i ${bridgeName} -j DROP` })),
};

interface FirewallRules {
  apply(): Promise<void>;
}

/** Sets the rules of both address families where they differ from what it set before. */
function createFirewallRules(policy: NetworkPolicy, logger: Logger): FirewallRules {
  const unlimited = { ...policy, maxConnections: 0, newConnectionsPerSecond: 0 };
  const limited = limitRules(policy).length > 0;
  const applyIpv4 = createRuleSetter();
  const applyIpv6 = createRuleSetter();
  let limitsRefusedAt = Number.NEGATIVE_INFINITY;

  async function applyLimited(): Promise<void> {
    if (!limited || performance.now() - limitsRefusedAt < limitsRetryMs) return applyIpv4(ipv4Firewall(unlimited));
    try {
      await applyIpv4(ipv4Firewall(policy));
    } catch (error) {
      // Where the other rules can't be set either, the limits weren't what failed, and this throws.
      await applyIpv4(ipv4Firewall(unlimited));
      limitsRefusedAt = performance.now();
      logger.warn(
        { reason: messageOf(error) },
        "the connections of sandboxes are not limited: the kernel or iptables lacks the connlimit or hashlimit match",
      );
    }
  }

  return {
    async apply() {
      await applyLimited();
      if (await exists("/proc/net/if_inet6")) await applyIpv6(ipv6Firewall);
    },
  };
}

/**
 * Replaces our chains and moves our jumps to the front, all in one commit, so that there is no moment without rules. A
 * chain that still is as this process set it stays: a rule that counts connections forgets them when it is replaced.
 */
function createRuleSetter(): (firewall: Firewall) => Promise<void> {
  let known: { wanted: string; listed: string } | undefined;

  /** How the tool lists our chains; undefined unless they are there with as many rules as wanted. */
  function listingOf(firewall: Firewall, current: readonly string[]): string | undefined {
    const parts = Object.entries(firewall.chains).map(([name, rules]) => {
      const listed = current.filter((line) => line.startsWith(`-A ${name} `));
      return current.includes(`-N ${name}`) && listed.length === rules.length ? listed.join("\n") : undefined;
    });
    return parts.includes(undefined) ? undefined : parts.join("\n");
  }

  async function list({ command }: Firewall): Promise<string[]> {
    return (await runIptables(command, ["-S"])).split("\n");
  }

  return async (firewall) => {
    for (let attempt = 1; ; attempt++) {
      const current = await list(firewall);
      requireEngineChains(firewall, current);
      const wanted = JSON.stringify(firewall.chains);
      const isKept = known?.wanted === wanted && known.listed === listingOf(firewall, current);
      const lines = [...(isKept ? [] : replacementOf(firewall)), ...jumpsToMove(firewall, current)];
      if (lines.length === 0) return;
      try {
        const input = ["*filter", ...lines, "COMMIT", ""].join("\n");
        await runIptables(`${firewall.command}-restore`, ["--noflush"], input);
      } catch (error) {
        // Another process may have moved the jumps between the listing and the commit.
        if (attempt === commitAttempts) throw error;
        continue;
      }
      if (isKept) return;
      const listed = listingOf(firewall, await list(firewall));
      known = listed === undefined ? undefined : { wanted, listed };
      return;
    }
  };
}

function replacementOf({ chains }: Firewall): string[] {
  return [
    ...Object.keys(chains).map((name) => `:${name} - [0:0]`),
    ...Object.entries(chains).flatMap(([name, rules]) => rules.map((rule) => `-A ${name} ${rule}`)),
  ];
}

function jumpsToMove({ jumps }: Firewall, current: readonly string[]): string[] {
  return jumps.flatMap(({ chain, rule }) => {
    const inChain = current.filter((line) => line.startsWith(`-A ${chain} `));
    const ours = inChain.filter((line) => line === `-A ${chain} ${rule}`);
    if (inChain[0] === ours[0] && ours.length === 1) return [];
    return [...ours.map(() => `-D ${chain} ${rule}`), `-I ${chain} 1 ${rule}`];
  });
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
