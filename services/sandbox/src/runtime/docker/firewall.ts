import { messageOf } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import { deniedRanges, isDenied } from "../isolation/denied-ranges.ts";
import type { Destination, EgressPolicy } from "../isolation/egress.ts";
import { exists } from "./files.ts";
import { runIptables } from "./iptables.ts";
import type { HostNames } from "./names.ts";

const commitAttempts = 3;

/** How many new connections beyond the rate a quiet sandbox may open at once, in seconds of the rate. */
const burstSeconds = 5;

/** The same for bandwidth. iptables takes no less than one, and rounds the rate up. */
const bandwidthBurstSeconds = 2;
const bytesPerMegabit = 125_000;

/** How long until a kernel that refused the limits is tried again. */
const limitsRetryMs = 600_000;

/**
 * Where the rules are. The engine takes its own chains of the table `filter` out for a moment whenever it makes a
 * network, DOCKER-USER too, so that rules behind them let everything pass meanwhile. What this table drops no other
 * accepts, whichever program rules there, and with whichever backend.
 */
const table = "mangle";
/** Where an earlier version had them. */
const earlierTable = "filter";

/** The jumps of all installations: any of them may be first. */
const jumpOfInstallation = /^-A \S+ -[io] sg[0-9a-z]{5}-\+ -j (SANDGATE-\S+|DROP)$/;

/** What sandboxes may do on the network. */
export interface NetworkPolicy extends EgressPolicy {
  /** Connections and UDP flows that a sandbox may have at once, and open in a second. 0: no limit. */
  maxConnections: number;
  newConnectionsPerSecond: number;
  /** Megabits a second of a sandbox, in each direction. 0: no limit. */
  bandwidthMbit: number;
}

/**
 * The rules of one address family: chains of our own, replaced as a whole, and the jumps to them, before all but the
 * like.
 */
interface Firewall {
  command: "iptables" | "ip6tables";
  chains: Record<string, readonly string[]>;
  jumps: readonly Jump[];
}

interface Jump {
  chain: string;
  rule: string;
}

/**
 * The firewall of the engine's host for an installation's bridges, which all begin alike.
 *
 * INPUT: a sandbox reaches nothing on the host, whatever the address; it may only answer connections that the host
 * opened, which is how readiness is probed. FORWARD drops the denied ranges and what would go to another sandbox;
 * enable_icc=false keeps neighbours apart a second time. From beyond the host a sandbox gets answers alone: the engine
 * leaves FORWARD open where somebody else made the host forward. IPv6 is off in the networks, and dropped as well. Other
 * containers never match, since every rule names our bridges. A kernel without the matches that limit connections and
 * bandwidth is warned of, and the other rules are set.
 */
export interface FirewallRules {
  /**
   * Sets the rules of both address families where they differ from what it set before. Throws ISOLATION_UNAVAILABLE.
   */
  apply(): Promise<void>;
}

export function createFirewallRules(o: { policy: NetworkPolicy; names: HostNames; logger: Logger }): FirewallRules {
  const { policy, names } = o;
  const unlimited = { ...policy, maxConnections: 0, newConnectionsPerSecond: 0, bandwidthMbit: 0 };
  const isLimited = policy.maxConnections + policy.newConnectionsPerSecond + policy.bandwidthMbit > 0;
  const applyIpv4 = createRuleSetter();
  const applyIpv6 = createRuleSetter();
  let limitsRefusedAt = Number.NEGATIVE_INFINITY;
  let hasRemovedEarlier = false;

  async function applyLimited(): Promise<void> {
    const withoutLimits = ipv4Firewall(unlimited, names);
    if (!isLimited || performance.now() - limitsRefusedAt < limitsRetryMs) return applyIpv4(withoutLimits);
    try {
      await applyIpv4(ipv4Firewall(policy, names));
    } catch (error) {
      // Where the other rules can't be set either, the limits weren't what failed, and this throws.
      await applyIpv4(withoutLimits);
      limitsRefusedAt = performance.now();
      o.logger.warn(
        { reason: messageOf(error) },
        "connections and bandwidth of sandboxes are not limited: the kernel or iptables lacks the connlimit or hashlimit match",
      );
    }
  }

  return {
    async apply() {
      await applyLimited();
      if (await hasIpv6()) await applyIpv6(ipv6Firewall(names));
      if (!hasRemovedEarlier) await removeRules(names, earlierTable);
      hasRemovedEarlier = true;
    },
  };
}

/** Removes every rule and chain of an installation, whatever its policy and version were, and answers which. */
export async function removeFirewallRules(names: HostNames): Promise<string[]> {
  return [...(await removeRules(names, table)), ...(await removeRules(names, earlierTable))];
}

async function removeRules(names: HostNames, from: string): Promise<string[]> {
  const removed: string[] = [];
  for (const command of ["iptables", ...((await hasIpv6()) ? ["ip6tables"] : [])]) {
    const lines = await listRules(command, from);
    const isJump = (line: string) => line.startsWith("-A ") && line.includes(` ${bridgesOf(names)} -j `);
    const jumps = lines.filter((line) => isJump(line) && !line.startsWith(`-A ${names.chainPrefix}-`));
    const chains = lines.flatMap((line) => (line.startsWith(`:${names.chainPrefix}-`) ? [nameOfChain(line)] : []));
    const removals = [
      ...jumps.map((line) => line.replace("-A", "-D")),
      ...chains.map((chain) => `-F ${chain}`),
      ...chains.map((chain) => `-X ${chain}`),
    ];
    if (removals.length === 0) continue;
    await commitRules(command, from, removals);
    removed.push(...[...jumps, ...chains].map((what) => `${command} ${what}`));
  }
  return removed;
}

function hasIpv6(): Promise<boolean> {
  return exists("/proc/net/if_inet6");
}

/** None of a table with rules of others that can only be shown by nft, where iptables itself fails. */
async function listRules(command: string, from: string): Promise<string[]> {
  return (await runIptables(`${command}-save`, ["-t", from])).split("\n");
}

/** Of a line such as `:INPUT ACCEPT [0:0]`. */
function nameOfChain(line: string): string {
  return line.slice(1, line.indexOf(" "));
}

/** All of the lines or none. */
async function commitRules(command: string, to: string, lines: readonly string[]): Promise<void> {
  await runIptables(`${command}-restore`, ["--noflush"], [`*${to}`, ...lines, "COMMIT", ""].join("\n"));
}

function ipv4Firewall(policy: NetworkPolicy, names: HostNames): Firewall {
  const resolvers = policy.nameservers.filter(isDenied).map((address) => ({ network: `${address}/32`, port: 53 }));
  const input = `${names.chainPrefix}-INPUT`;
  const forward = `${names.chainPrefix}-FORWARD`;
  const answer = `${names.chainPrefix}-ANSWER`;
  const bridges = bridgesOf(names);
  return {
    command: "iptables",
    chains: {
      [input]: ["-m conntrack --ctstate RELATED,ESTABLISHED --ctdir REPLY -j RETURN", "-j DROP"],
      [forward]: [
        ...bandwidthRules(policy, names, "src"),
        ...connectionRules(policy, names),
        `-o ${bridges} -j DROP`,
        ...rulesFor(resolvers, "RETURN"),
        ...rulesFor(policy.deny, "DROP"),
        ...rulesFor(policy.allow, "RETURN"),
        ...(policy.smtp ? [] : ["-p tcp -m tcp --dport 25 -j DROP"]),
        ...deniedRanges.map((range) => `-d ${range} -j DROP`),
      ],
      [answer]: ["-m conntrack ! --ctstate RELATED,ESTABLISHED -j DROP", ...bandwidthRules(policy, names, "dst")],
    },
    jumps: [
      { chain: "INPUT", rule: `-i ${bridges} -j ${input}` },
      { chain: "FORWARD", rule: `-i ${bridges} -j ${forward}` },
      { chain: "FORWARD", rule: `-o ${bridges} -j ${answer}` },
    ],
  };
}

function ipv6Firewall(names: HostNames): Firewall {
  const rule = `-i ${bridgesOf(names)} -j DROP`;
  return { command: "ip6tables", chains: {}, jumps: ["INPUT", "FORWARD"].map((chain) => ({ chain, rule })) };
}

/** How iptables names all bridges of the installation. */
function bridgesOf({ bridgePrefix }: HostNames): string {
  return `${bridgePrefix}+`;
}

/**
 * Rates are in the tables' names, since the kernel keeps a table of the same name as it was. Nothing counts the
 * connections of all sandboxes: connlimit looks at each for every new one, which takes milliseconds for some thousand.
 * The kernel's own table has room for them (kernel-limits.ts).
 */
function connectionRules({ maxConnections, newConnectionsPerSecond: rate }: NetworkPolicy, names: HostNames): string[] {
  const rules: string[] = [];
  if (rate > 0) {
    const limit = `--hashlimit-above ${rate}/sec --hashlimit-burst ${rate * burstSeconds}`;
    rules.push(`-m hashlimit ${limit} --hashlimit-mode srcip --hashlimit-name ${names.tablePrefix}-n${rate}`);
  }
  if (maxConnections > 0) {
    rules.push(`-m connlimit --connlimit-above ${maxConnections} --connlimit-mask 32 --connlimit-saddr`);
  }
  return rules.map((rule) => `-m conntrack --ctstate NEW ${rule} -j DROP`);
}

/** Of what sandboxes send (`src`) or get (`dst`). What is dropped makes TCP slow down to the rate. */
function bandwidthRules({ bandwidthMbit: rate }: NetworkPolicy, names: HostNames, side: "src" | "dst"): string[] {
  if (rate === 0) return [];
  const bytes = rate * bytesPerMegabit;
  const limit = `--hashlimit-above ${bytes}b/s --hashlimit-burst ${bytes * bandwidthBurstSeconds}b`;
  const table = `${names.tablePrefix}-${side[0]}${rate}`;
  return [`-m hashlimit ${limit} --hashlimit-mode ${side}ip --hashlimit-name ${table} -j DROP`];
}

function rulesFor(destinations: readonly Destination[], verdict: "RETURN" | "DROP"): string[] {
  return destinations.flatMap(({ network, port }) =>
    port === undefined
      ? [`-d ${network} -j ${verdict}`]
      : ["udp", "tcp"].map((protocol) => `-d ${network} -p ${protocol} -m ${protocol} --dport ${port} -j ${verdict}`),
  );
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
      const isThere = current.some((line) => line.startsWith(`:${name} `));
      return isThere && listed.length === rules.length ? listed.join("\n") : undefined;
    });
    return parts.includes(undefined) ? undefined : parts.join("\n");
  }

  return async (firewall) => {
    for (let attempt = 1; ; attempt++) {
      const current = await listRules(firewall.command, table);
      const wanted = JSON.stringify(firewall.chains);
      const isKept = known?.wanted === wanted && known.listed === listingOf(firewall, current);
      const lines = [...(isKept ? [] : replacementOf(firewall)), ...jumpsToMove(firewall, current)];
      if (lines.length === 0) return;
      try {
        await commitRules(firewall.command, table, lines);
      } catch (error) {
        // Another process may have moved the jumps between the listing and the commit.
        if (attempt === commitAttempts) throw error;
        continue;
      }
      if (isKept) return;
      const listed = listingOf(firewall, await listRules(firewall.command, table));
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

/** Each of our jumps once, and no rule of others before it but such jumps of another installation. */
function jumpsToMove({ jumps }: Firewall, current: readonly string[]): string[] {
  return jumps.flatMap(({ chain, rule }) => {
    const inChain = current.filter((line) => line.startsWith(`-A ${chain} `));
    const firstOther = inChain.findIndex((line) => !jumpOfInstallation.test(line));
    const places = inChain.flatMap((line, place) => (line === `-A ${chain} ${rule}` ? [place] : []));
    const [place = Number.POSITIVE_INFINITY] = places;
    if (places.length === 1 && (firstOther === -1 || place < firstOther)) return [];
    return [...places.map(() => `-D ${chain} ${rule}`), `-I ${chain} 1 ${rule}`];
  });
}
