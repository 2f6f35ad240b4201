import { readFile, writeFile } from "node:fs/promises";
import { type Engine, type EngineInfo, inspectNetwork, readInfo } from "@sandgate/docker-engine/client";
import { ignoreStatus, toRuntimeUnavailable } from "@sandgate/docker-engine/errors";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { createStateLog, type Logger } from "@sandgate/kit/base/logging";
import { createControlGroup, type TotalLimits } from "./control-group.ts";
import { createFirewallRules, type NetworkPolicy } from "./firewall.ts";
import { createKernelLimits } from "./kernel-limits.ts";
import type { HostNames } from "./names.ts";
import { readInterfaces } from "./routes.ts";
import { createStaleFlows, type StaleFlows } from "./stale-flows.ts";

/** Since this version the engine's resolver can't be kept out of a container on a network of its own. */
const firstResolvingVersion = 26;

/** How long the removal of rules by someone else can go unnoticed while sandboxes are created. */
export const recheckMs = 30_000;

/** What there is to know of the engine's host before a container is created. */
export interface EngineHost {
  /** Whether the engine tells containers the names and addresses of others on their network. */
  tellsNeighbours: boolean;
  cgroupParent: string | undefined;
  isRootless: boolean;
}

/** Configures the engine's host: sandboxes reach the public internet and nothing else, and don't use up the host. */
export interface Isolation {
  /**
   * Adds what is missing. Throws ISOLATION_UNAVAILABLE with the reason, or RUNTIME_UNAVAILABLE. The firewall's rules are
   * set without the engine too, since sandboxes may run on.
   */
  verify(): Promise<EngineHost>;
  /** Does what `verify` does, unless that succeeded in the last 30 s. */
  verifyRecent(): Promise<EngineHost>;
  /** Throws ISOLATION_UNAVAILABLE for a bridge that the firewall of this machine doesn't cover. */
  verifyBridge(bridge: string): Promise<void>;
  /** Sets the limits of all sandboxes together, where that had to wait for the first sandbox. */
  verifyTotals(): Promise<void>;
  endStaleFlows: StaleFlows["endUnused"];
}

/** With `enforce` false nothing is demanded of the engine, and neither rules nor the kernel's limits are set. */
export function createIsolation(o: {
  engine: Engine;
  names: HostNames;
  enforce: boolean;
  ociRuntime: string | undefined;
  policy: NetworkPolicy;
  totals: TotalLimits;
  logger: Logger;
}): Isolation {
  const rules = createFirewallRules(o);
  const kernelLimits = createKernelLimits({ ...o, maxConnections: o.policy.maxConnections });
  const staleFlows = createStaleFlows(o);
  const controlGroup = createControlGroup(o);
  let verified: { at: number; host: EngineHost } | undefined;
  let running: Promise<EngineHost> | undefined;
  let isHere = false;
  const tellOwnNetworks = createStateLog(
    o.logger,
    "each workspace has networks of its own: the engine's resolver knows the neighbours of a sandbox",
    { level: "info" },
  );

  function hostOf(info: EngineInfo): EngineHost {
    const reason = resolverReason(info);
    tellOwnNetworks(reason);
    return {
      tellsNeighbours: reason !== undefined,
      cgroupParent: controlGroup.parentOf(info),
      isRootless: info.SecurityOptions?.includes("name=rootless") ?? false,
    };
  }

  async function verifyOnce(): Promise<EngineHost> {
    verified = undefined;
    const [read, ruled] = await Promise.allSettled([readHost(), o.enforce ? setRules() : undefined]);
    if (read.status === "rejected") throw toRuntimeUnavailable(read.reason);
    if (ruled.status === "rejected") throw ruled.reason;
    await controlGroup.apply();
    verified = { at: performance.now(), host: read.value };
    return read.value;
  }

  async function setRules(): Promise<void> {
    await requireHere();
    await rules.apply();
    // The kernel counts connections from the first rule on that asks for them.
    await kernelLimits.apply();
    const interfaces = await readInterfaces();
    if (interfaces.some((name) => name.startsWith(o.names.bridgePrefix))) await enableBridgeFilter();
  }

  /** Throws ISOLATION_UNAVAILABLE where the engine's default bridge, if it has one, isn't on this machine. */
  async function requireHere(): Promise<void> {
    if (isHere) return;
    const [network] = await Promise.allSettled([ignoreStatus([404], inspectNetwork(o.engine, "bridge"))]);
    // Sandboxes may run on while the engine doesn't answer.
    if (network.status === "rejected") return;
    const bridge: string | undefined = network.value?.Options?.["com.docker.network.bridge.name"];
    if (bridge !== undefined) await requireInterface(bridge);
    isHere = true;
  }

  async function readHost(): Promise<EngineHost> {
    const info = await readInfo(o.engine);
    if (o.enforce) requireFeatures(info, o.ociRuntime);
    return hostOf(info);
  }

  function verify(): Promise<EngineHost> {
    running ??= verifyOnce().finally(() => {
      running = undefined;
    });
    return running;
  }

  return {
    verify,
    async verifyRecent() {
      return verified && performance.now() - verified.at <= recheckMs ? verified.host : verify();
    },
    async verifyBridge(bridge) {
      if (!o.enforce) return;
      await requireInterface(bridge);
      await enableBridgeFilter();
    },
    verifyTotals: controlGroup.applyOnce,
    endStaleFlows: async (networkName) => (o.enforce ? staleFlows.endUnused(networkName) : async () => {}),
  };
}

function refuse(message: string, hint?: string, cause?: unknown): DomainError {
  return new DomainError("ISOLATION_UNAVAILABLE", message, { hint, cause });
}

/**
 * Why this engine gives containers its embedded resolver all the same (`containerOptionsOf`); undefined: it doesn't.
 */
export function resolverReason({
  ServerVersion: version,
  LiveRestoreEnabled: liveRestore,
}: Pick<EngineInfo, "ServerVersion" | "LiveRestoreEnabled">): string | undefined {
  // An unknown version counts as a later one.
  if (!(Number.parseInt(version, 10) < firstResolvingVersion)) {
    return `version ${version} runs its resolver in every container; versions up to 25 need not`;
  }
  return liveRestore ? "with live-restore it starts its resolver in running containers when it restarts" : undefined;
}

/** Throws ISOLATION_UNAVAILABLE for a bridge whose traffic doesn't pass the firewall of this process's network. */
async function requireInterface(bridge: string): Promise<void> {
  if ((await readInterfaces()).includes(bridge)) return;
  throw refuse(
    `The bridge ${bridge} is not on this machine, so its firewall can't be configured from here.`,
    "Run Sandgate on the engine's host, or in a container that uses the host's network.",
  );
}

/** What is demanded of an engine. Throws ISOLATION_UNAVAILABLE. */
function requireFeatures(info: EngineInfo, ociRuntime: string | undefined): void {
  if (!info.MemoryLimit || !info.PidsLimit || !info.CpuCfsQuota) {
    throw refuse(
      "The engine can't limit memory, processes or CPU.",
      "Enable the memory, pids and cpu cgroup controllers.",
    );
  }
  if (ociRuntime !== undefined && !(ociRuntime in (info.Runtimes ?? {}))) {
    throw refuse(`The engine has no runtime "${ociRuntime}".`, "Add it to the engine's daemon.json.");
  }
  if (
    !info.SecurityOptions?.some((option) => option.startsWith("name=seccomp") && !option.includes("profile=unconfined"))
  ) {
    throw refuse("The engine runs containers without a seccomp profile.");
  }
}

/**
 * Traffic between two ports of a bridge passes iptables only with this on. The engine sets it for enable_icc=false too.
 */
async function enableBridgeFilter(): Promise<void> {
  const file = "/proc/sys/net/bridge/bridge-nf-call-iptables";
  try {
    if ((await readFile(file, "utf8")).trim() !== "1") await writeFile(file, "1");
  } catch (cause) {
    throw refuse(
      "The host does not filter traffic between containers on one bridge.",
      "Load the kernel module br_netfilter.",
      cause,
    );
  }
}
