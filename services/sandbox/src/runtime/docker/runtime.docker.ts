import { openEngine } from "@sandgate/docker-engine/client";
import type { Logger } from "@sandgate/kit/base/logging";
import type { Metrics } from "@sandgate/kit/base/metrics";
import type { Runtime } from "../runtime.ts";
import { createConnector } from "./connector.ts";
import type { TotalLimits } from "./control-group.ts";
import { createDockerDisk } from "./disk.docker.ts";
import type { NetworkPolicy } from "./firewall.ts";
import { createHelperVolume } from "./helper-volume.ts";
import { createDockerImages } from "./images.docker.ts";
import { createIsolation } from "./isolation.ts";
import { createDockerLifecycle } from "./lifecycle.docker.ts";
import { hostNamesOf } from "./names.ts";
import { createNetworks } from "./networks.ts";
import { createDockerOperations } from "./operations.docker.ts";
import { defaultSubnetRange, parseSubnetRange, type Subnet } from "./subnets.ts";

export interface DockerRuntimeOptions {
  /** `docker:///var/run/docker.sock`, `docker://host:port`, `unix://…` or `tcp://…`. */
  url: string;
  /** Objects of other installations on the same engine are neither listed nor touched. */
  installationId: string;
  /** False: no firewall rules and no demands on the engine, for a machine where all tenants are trusted. */
  isolation: boolean;
  /** An OCI runtime that the engine has set up, such as `runsc` (gVisor). The engine's default when absent. */
  ociRuntime?: string | undefined;
  /**
   * Resolvers for sandboxes, as `checkResolvers` takes them, public ones unless set. They are asked from within the
   * container's network, so the firewall applies; one in a private range is allowed on port 53. The host's own resolver
   * is never used.
   */
  nameservers?: readonly string[] | undefined;
  /** What else sandboxes may do on the network: anything public but SMTP, without limits of connections, unless set. */
  network?: Partial<Omit<NetworkPolicy, "nameservers">>;
  /** What networks of sandboxes are cut from, 198.18.0.0/15 unless set. */
  subnets?: readonly Subnet[] | undefined;
  /**
   * Networks of its own for each workspace. Unless set, only where the engine tells containers of others on their
   * network.
   */
  networkPerWorkspace?: boolean | undefined;
  /** What all sandboxes together may take of the host. */
  totals?: TotalLimits | undefined;
  /** MiB that a container may write, 10,240 unless set. Where the storage can't limit it, `disk` measures it. */
  diskMb?: number | undefined;
  logger: Logger;
  /** Where calls of the engine are counted, if anywhere. */
  metrics?: Metrics;
}

/**
 * Sandboxes as containers of a Docker-compatible engine (API 1.41 or later). Nothing is connected before the first
 * call.
 */
export function createDockerRuntime(options: DockerRuntimeOptions): Required<Runtime> {
  const { installationId, networkPerWorkspace, ociRuntime, logger, diskMb = 10_240 } = options;
  const nameservers = options.nameservers ?? ["1.1.1.1", "8.8.8.8"];
  const engine = openEngine(options.url, options.metrics);
  const names = hostNamesOf(installationId);
  const policy: NetworkPolicy = {
    maxConnections: 0,
    newConnectionsPerSecond: 0,
    bandwidthMbit: 0,
    smtp: false,
    deny: [],
    allow: [],
    ...options.network,
    nameservers,
  };
  const isolation = createIsolation({
    engine,
    names,
    enforce: options.isolation,
    ociRuntime,
    policy,
    totals: options.totals ?? {},
    logger,
  });
  const networks = createNetworks({
    engine,
    installationId,
    names,
    subnets: options.subnets ?? parseSubnetRange(defaultSubnetRange),
    verifyBridge: isolation.verifyBridge,
    logger,
  });
  // Only root may enter a container's network.
  const connector = process.geteuid?.() === 0 ? createConnector() : undefined;
  const defaults = { installationId, nameservers, ociRuntime, diskMb };
  return {
    lifecycle: createDockerLifecycle({
      engine,
      isolation,
      networks,
      networkPerWorkspace,
      helperVolume: createHelperVolume({ engine, installationId, prefix: names.helperVolumePrefix }),
      defaults,
      logger,
    }),
    operations: createDockerOperations(engine, { connector, logger }),
    images: createDockerImages(engine),
    disk: createDockerDisk({ engine }),
    close: async () => connector?.close(),
  };
}
