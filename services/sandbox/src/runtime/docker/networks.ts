import { setTimeout as delay } from "node:timers/promises";
import { installationLabels, installationSelector, labelKeys } from "@sandgate/container-labels";
import { type ContainerInfo, callEngine, type Engine } from "@sandgate/docker-engine/client";
import { engineMessageOf, ignoreStatus, statusOf } from "@sandgate/docker-engine/errors";
import type { Logger } from "@sandgate/kit/base/logging";
import { formatNetwork, overlaps } from "../isolation/ipv4-network.ts";
import { SandboxRefused } from "../lifecycle.ts";
import { type HostNames, hashBelow } from "./names.ts";
import { readRoutes } from "./routes.ts";
import { capacityOf, parseSubnetRange, type Subnet } from "./subnets.ts";

/**
 * How long a network without containers is kept, so that a workspace that starts one after the other creates one only.
 */
const keepUnusedMs = 600_000;

/** How often the engine is asked for networks that other processes made. */
const refreshMs = 60_000;

/** Subnets tried in a row that somebody else had. */
const maxTaken = 32;

/** For how long a network that another process is making may take until it is listed. */
const listAttempts = 50;
const listRetryMs = 100;

/** How the engine refuses a network whose name, bridge or subnet another has. */
const takenByAnother = /already exists|overlaps|conflicts with network/i;

/** The networks of an installation's sandboxes, on any number of processes. */
export interface Networks {
  /**
   * Chooses a network with a free address, as far as is known, for a sandbox of the workspace, and creates one when
   * there is none. Workspaces share an engine's networks, unless `perWorkspace`. Throws SandboxRefused when no
   * subnet is free.
   */
  choose(workspaceId: string, o: { perWorkspace: boolean }): Promise<string>;
  /** The engine couldn't start a container on it: all its addresses are used, or somebody removed it. */
  refused(name: string, why: "full" | "gone"): void;
  /** Counts the containers of each network, and removes networks that none has used for ten minutes. Never rejects. */
  update(containers: readonly ContainerInfo[]): Promise<void>;
}

interface KnownNetwork {
  name: string;
  bridge: string;
  /** "" for all workspaces. */
  workspaceId: string;
  subnet: Subnet;
  /** Those of the last list, and those that were assigned since. */
  containers: number;
  /** By performance.now(). Undefined: it is used. */
  unusedSince: number | undefined;
  isVerified: boolean;
}

export function createNetworks(o: {
  engine: Engine;
  installationId: string;
  names: HostNames;
  subnets: readonly Subnet[];
  /** Throws ISOLATION_UNAVAILABLE unless the firewall of this machine covers the bridge. */
  verifyBridge(bridge: string): Promise<void>;
  logger: Logger;
}): Networks {
  const { engine, names, logger } = o;
  const known = new Map<string, KnownNetwork>();
  const making = new Map<string, Promise<void>>();
  let refreshedAt = performance.now();

  const hasCapacity = ({ containers, subnet }: KnownNetwork) => containers < capacityOf(subnet);
  const find = (workspaceId: string) =>
    [...known.values()].find((network) => network.workspaceId === workspaceId && hasCapacity(network));

  function remember(name: string, subnet: Subnet, workspaceId: string): void {
    known.set(name, {
      name,
      bridge: names.bridgeOf(subnet),
      workspaceId,
      subnet,
      containers: 0,
      unusedSince: undefined,
      isVerified: false,
    });
  }

  /** Learns of networks that other processes made or removed. */
  async function refresh(): Promise<void> {
    const filters = { label: [installationSelector(o.installationId)] };
    const listed = await callEngine((abortSignal) => engine.listNetworks({ filters, abortSignal }));
    const present = new Set(listed.map(({ Name }) => Name));
    for (const name of known.keys()) {
      if (!present.has(name)) known.delete(name);
    }
    for (const { Name: name, Labels: labels, IPAM: ipam } of listed) {
      const [subnet] = parseSubnetRange(ipam?.Config?.[0]?.Subnet ?? "");
      if (subnet && !known.has(name)) remember(name, subnet, labels?.[labelKeys.workspace] ?? "");
    }
    refreshedAt = performance.now();
  }

  /** Creates a network, unless another process has created one with a free address meanwhile. */
  async function make(workspaceId: string): Promise<void> {
    await refresh();
    if (find(workspaceId)) return;
    const routes = await readRoutes();
    // All processes begin at the same subnet, so that two that create a workspace's first network at once meet there.
    const start = hashBelow(`${o.installationId} ${workspaceId}`, o.subnets.length);
    let taken = 0;
    for (const subnet of [...o.subnets.slice(start), ...o.subnets.slice(0, start)]) {
      if (known.has(names.networkOf(subnet))) continue;
      const route = routes.find((each) => overlaps(each, subnet));
      if (route && route.device !== names.bridgeOf(subnet)) continue;
      if (!route && (await create(subnet, workspaceId))) return;
      if (await awaitListing(subnet, workspaceId)) return;
      taken += 1;
      if (taken === maxTaken) break;
    }
    logger.error(
      { networks: known.size, subnets: o.subnets.length },
      "no network addresses are left for sandboxes: all of SANDGATE_SANDBOX_SUBNETS is in use",
    );
    throw new SandboxRefused({
      reason: "unschedulable",
      message: "The host is full: no network addresses are left for sandboxes.",
    });
  }

  /**
   * Whether the network that another process is creating of a subnet is one for this workspace. It is listed once it is
   * whole.
   */
  async function awaitListing(subnet: Subnet, workspaceId: string): Promise<boolean> {
    for (let attempt = 1; ; attempt++) {
      await refresh();
      if (find(workspaceId)) return true;
      if (attempt === listAttempts || known.has(names.networkOf(subnet))) return false;
      await delay(listRetryMs);
    }
  }

  /** False when somebody has its name or subnet. */
  async function create(subnet: Subnet, workspaceId: string): Promise<boolean> {
    const name = names.networkOf(subnet);
    const options = networkOptionsOf(name, names.bridgeOf(subnet), subnet);
    const labels = networkLabels(o.installationId, workspaceId);
    try {
      await callEngine((abortSignal) => engine.createNetwork({ ...options, Labels: labels, abortSignal }));
    } catch (error) {
      if (statusOf(error) !== undefined && takenByAnother.test(engineMessageOf(error))) return false;
      throw error;
    }
    remember(name, subnet, workspaceId);
    return true;
  }

  /** One that can't be removed is tried again after as long. */
  async function removeUnused(network: KnownNetwork): Promise<void> {
    try {
      await ignoreStatus(
        [404],
        callEngine((abortSignal) => engine.getNetwork(network.name).remove({ abortSignal })),
      );
      known.delete(network.name);
    } catch (error) {
      network.unusedSince = undefined;
      // 403: a container has been started on it meanwhile.
      if (statusOf(error) === 403) return;
      logger.warn({ err: error, network: network.name }, "an unused network of sandboxes can't be removed; will retry");
    }
  }

  return {
    async choose(workspaceId, { perWorkspace }) {
      const owner = perWorkspace ? workspaceId : "";
      for (;;) {
        const network = find(owner);
        if (network) {
          network.containers += 1;
          network.unusedSince = undefined;
          if (!network.isVerified) await o.verifyBridge(network.bridge);
          network.isVerified = true;
          return network.name;
        }
        const running = making.get(owner) ?? make(owner).finally(() => making.delete(owner));
        making.set(owner, running);
        await running;
      }
    },

    refused(name, why) {
      const network = known.get(name);
      if (!network) return;
      if (why === "gone") known.delete(name);
      else network.containers = capacityOf(network.subnet);
    },

    async update(containers) {
      try {
        if (performance.now() - refreshedAt > refreshMs) await refresh();
        const counts = new Map<string, number>();
        for (const name of containers.flatMap((each) => Object.keys(each.NetworkSettings?.Networks ?? {}))) {
          counts.set(name, (counts.get(name) ?? 0) + 1);
        }
        for (const network of [...known.values()]) {
          network.containers = counts.get(network.name) ?? 0;
          network.unusedSince = network.containers > 0 ? undefined : (network.unusedSince ?? performance.now());
          const unusedMs = performance.now() - (network.unusedSince ?? Number.POSITIVE_INFINITY);
          if (unusedMs > keepUnusedMs) await removeUnused(network);
        }
      } catch (error) {
        logger.warn({ err: error }, "the networks of sandboxes can't be listed; will retry");
      }
    },
  };
}

function networkOptionsOf(name: string, bridge: string, subnet: Subnet) {
  return {
    Name: name,
    CheckDuplicate: true,
    Driver: "bridge",
    EnableIPv6: false,
    IPAM: { Driver: "default", Config: [{ Subnet: formatNetwork(subnet) }] },
    Options: {
      "com.docker.network.bridge.name": bridge,
      "com.docker.network.bridge.enable_icc": "false",
      "com.docker.network.bridge.enable_ip_masquerade": "true",
    },
  };
}

/** The labels of a network for one workspace, or for all when `workspaceId` is "". */
function networkLabels(installationId: string, workspaceId: string): Record<string, string> {
  return { ...installationLabels(installationId), ...(workspaceId && { [labelKeys.workspace]: workspaceId }) };
}
