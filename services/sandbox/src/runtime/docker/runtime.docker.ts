import { isIPv4 } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { type Container, type ContainerInfo, callEngine, openEngine } from "@sandgate/docker-engine/client";
import { containerNameOf, labelFilter } from "@sandgate/docker-engine/containers";
import { engineMessageOf, ignoreStatus, statusOf, toRuntimeUnavailable } from "@sandgate/docker-engine/errors";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import type { Metrics } from "@sandgate/kit/base/metrics";
import { mebibyte } from "@sandgate/kit/base/sizes";
import type { ImageEngine, Observation, Runtime, RuntimeSpec } from "../lifecycle.ts";
import { type ContainerPlace, containerOptionsOf } from "./container-options.ts";
import type { TotalLimits } from "./control-group.ts";
import { exists, measureDiskUse, storageProblem } from "./disk-use.ts";
import { createEnds, type Ending } from "./ends.ts";
import type { NetworkPolicy } from "./firewall.ts";
import { createImageCheck } from "./image-limits.ts";
import { createIsolation } from "./isolation.ts";
import { hostNamesOf } from "./names.ts";
import { createNetworks } from "./networks.ts";
import { type InspectedContainer, inspectContainer, listedOf, observationOf } from "./observation.ts";
import { observeEngine } from "./observe.ts";
import { probeExec, probeHttp } from "./probe.ts";
import { pullImage } from "./pull.ts";
import { defaultSubnetRange, parseSubnetRange, type Subnet } from "./subnets.ts";

/** Attempts of one `ensure` to create the container. */
const creationAttempts = 20;
const creationRetryMs = 100;

/** Containers that are ended or removed at once (`createEnds`). More don't make it quicker: it takes the engine processor time. */
const endsAtOnce = 16;

/** How the OCI runtime and the engine report a fault in the image's own configuration, as opposed to one of the engine. */
const configurationFault =
  /OCI runtime create failed|unable to find (?:user|group)|no matching entries in (?:passwd|group)|cannot mkdir: .* is not a directory/i;

/** How the engine reports a network without a free address, and one that was removed. */
const networkFull = /no available IPv4 addresses/i;
const networkGone = /network \S+ not found/i;

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
   * IPv4 resolvers for sandboxes, public ones unless set. They are asked from within the container's network, so the firewall
   * applies; one in a private range is allowed on port 53. A loopback address is refused: it would be the container's own.
   * The host's own resolver is never used.
   */
  nameservers?: readonly string[] | undefined;
  /** What else sandboxes may do on the network: anything public but SMTP, without limits of connections, unless set. */
  network?: Partial<Omit<NetworkPolicy, "nameservers">>;
  /** What networks of sandboxes are cut from, 198.18.0.0/15 unless set. */
  subnets?: readonly Subnet[] | undefined;
  /** Networks of its own for each workspace. Unless set, only where the engine tells containers of others on their network. */
  networkPerWorkspace?: boolean | undefined;
  /** What all sandboxes together may take of the host. */
  totals?: TotalLimits | undefined;
  /** MiB that a container may write, 10,240 unless set; `measureDisk` tells how many it has where the storage can't limit it. */
  diskMb?: number | undefined;
  logger: Logger;
  /** Where calls of the engine are counted, if anywhere. */
  metrics?: Metrics;
}

/** Sandboxes as containers of a Docker-compatible engine (API 1.41 or later). Nothing is connected before the first call. */
export function createDockerRuntime(options: DockerRuntimeOptions): Runtime & ImageEngine {
  const { installationId, ociRuntime, logger, diskMb = 10_240 } = options;
  const nameservers = options.nameservers ?? ["1.1.1.1", "8.8.8.8"];
  const unusable = nameservers.find((address) => !isIPv4(address) || address.startsWith("127."));
  if (unusable !== undefined) throw new Error(`not a resolver that sandboxes can use: ${unusable}`);
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
  const checkImage = createImageCheck(engine);
  const ensuring = new Map<string, Promise<Observation>>();
  const ends = createEnds({ atOnce: endsAtOnce });
  /** Where sandboxes run that are not ready yet. */
  const addresses = new Map<string, string>();
  // Until it is known not to: only overlay2 on xfs with pquota, btrfs, zfs and devicemapper have quotas.
  let limitsDisk = true;

  const containerOf = (sandboxId: string) => engine.getContainer(containerNameOf(sandboxId));
  const inspect = (sandboxId: string) => inspectContainer(engine, containerNameOf(sandboxId), { installationId });

  /** Once: concurrent calls may be refused too. */
  function warnOfMeasuring(reason: string): void {
    if (limitsDisk) {
      logger.warn(
        { reason },
        "the engine's storage can't limit what a sandbox writes: it is measured, and one that wrote more is ended some seconds later",
      );
    }
    limitsDisk = false;
  }

  /** Undefined when there is a container of that name already, or its network is gone. */
  async function create(spec: RuntimeSpec, place: ContainerPlace): Promise<Container | undefined> {
    const hasLimit = limitsDisk;
    const description = containerOptionsOf(spec, place, {
      installationId,
      nameservers,
      ociRuntime,
      diskMb,
      limitsDisk,
    });
    try {
      return await callEngine((abortSignal) => engine.createContainer({ ...description, abortSignal }));
    } catch (error) {
      const message = engineMessageOf(error);
      if (hasLimit && /storage-opt|storage driver.*(quota|size)/i.test(message)) {
        warnOfMeasuring(message);
        return create(spec, place);
      }
      // Created by an earlier attempt, or by another process meanwhile.
      if (statusOf(error) === 409) return undefined;
      if (statusOf(error) === 404 && /no such image/i.test(message)) {
        throw new DomainError("PROVISIONING_FAILED", "The image is no longer on the engine.", { cause: error });
      }
      if (statusOf(error) === 404 && networkGone.test(message)) {
        networks.refused(place.networkName, "gone");
        return undefined;
      }
      if (statusOf(error) === 400) throw toProvisioningFailed(error);
      throw error;
    }
  }

  /** Starts a container. One whose network is full or gone is removed instead, to be made on another. */
  async function start(container: Container, networkName: string): Promise<void> {
    try {
      await ignoreStatus(
        [304],
        callEngine((abortSignal) => container.start({ abortSignal })),
      );
    } catch (error) {
      const status = statusOf(error);
      const message = engineMessageOf(error);
      const why = networkFull.test(message) ? "full" : networkGone.test(message) ? "gone" : undefined;
      if (status !== undefined && why !== undefined) {
        networks.refused(networkName, why);
        // Without force: somebody else may have started it meanwhile.
        await ignoreStatus(
          [404, 409],
          callEngine((abortSignal) => container.remove({ v: true, abortSignal })),
        );
        return;
      }
      const isConfiguration = status === 400 || (status === 500 && configurationFault.test(message));
      throw isConfiguration ? toProvisioningFailed(error) : error;
    }
  }

  async function ensureOnce(spec: RuntimeSpec): Promise<Observation> {
    const host = await isolation.verifyRecent();
    const perWorkspace = options.networkPerWorkspace ?? host.tellsNeighbours;
    try {
      let container = await inspect(spec.sandboxId);
      const isNew = container === undefined;
      const isStarted = container !== undefined && container.info.State.Status !== "created";
      const volumes = isStarted ? [] : await checkImage(spec.reference);
      // A name can be taken before its container is visible: another process is creating it, or it is being removed.
      for (let attempt = 1; attempt <= creationAttempts; attempt++) {
        if (container && container.info.State.Status !== "created") break;
        if (container) {
          await start(engine.getContainer(container.info.Id), container.info.HostConfig.NetworkMode ?? "");
        } else {
          if (attempt > 1) await delay(creationRetryMs);
          const networkName = await networks.choose(spec.workspaceId, { perWorkspace });
          const created = await create(spec, { networkName, cgroupParent: host.cgroupParent, volumes });
          if (created) await start(created, networkName);
        }
        container = await inspect(spec.sandboxId);
      }
      // Another installation's container has the name, or it was removed at once.
      if (!container || container.info.State.Status === "created") {
        throw new DomainError("RUNTIME_UNAVAILABLE", "The container was gone after it was created.");
      }
      if (isNew) requireNoVolumes(container);
      await isolation.verifyTotals();
      noteAddress(spec.sandboxId, container);
      return await observationOf(engine, container);
    } catch (error) {
      throw toRuntimeUnavailable(error);
    }
  }

  async function listContainers(): Promise<ContainerInfo[]> {
    const filters = { label: labelFilter(installationId) };
    return callEngine((abortSignal) => engine.listContainers({ all: true, filters, abortSignal }));
  }

  /** The address of a running container. */
  function noteAddress(sandboxId: string, container: InspectedContainer | undefined): string | undefined {
    const address = container?.info.State.Running
      ? Object.values(container.info.NetworkSettings.Networks)[0]?.IPAddress
      : undefined;
    if (address) addresses.set(sandboxId, address);
    else addresses.delete(sandboxId);
    return address || undefined;
  }

  async function probeCommand(sandboxId: string, signal: AbortSignal): Promise<boolean> {
    const container = await inspect(sandboxId);
    if (!container?.info.State.Running) return false;
    const { Id: id, State: state } = container.info;
    return probeExec(engine.getContainer(id), new Date(state.StartedAt), signal);
  }

  /** A sandbox that doesn't answer yet is probed many times, so the engine is only asked whether it is the one that has answered. */
  async function probePort(sandboxId: string, port: number, signal: AbortSignal): Promise<boolean> {
    const known = addresses.get(sandboxId);
    if (known !== undefined && !(await probeHttp(known, port, signal))) return false;
    const address = noteAddress(sandboxId, await inspect(sandboxId));
    const isReady = address !== undefined && (address === known || (await probeHttp(address, port, signal)));
    if (isReady) addresses.delete(sandboxId);
    return isReady;
  }

  /** Says at the start what otherwise the first container would show. */
  async function checkStorage(): Promise<void> {
    if (!limitsDisk) return;
    const reason = storageProblem(await callEngine(() => engine.info()));
    if (reason !== undefined) warnOfMeasuring(reason);
  }

  return {
    async check() {
      await isolation.verify();
      await checkStorage().catch(throwUnavailable);
    },

    async findLocalImage(reference) {
      const image = engine.getImage(reference);
      const found = await ignoreStatus(
        [404],
        callEngine(() => image.inspect()),
      ).catch(throwUnavailable);
      return found && { reference: found.Id, digest: found.Id };
    },

    pull: (request) => pullImage(engine, request),

    async listImages() {
      try {
        const images = await callEngine((abortSignal) => engine.listImages({ abortSignal }));
        const containers = await callEngine((abortSignal) => engine.listContainers({ all: true, abortSignal }));
        const used = new Set(containers.map(({ ImageID: id }) => id));
        return images.map(({ Id: id, RepoDigests: names, Size: sizeBytes }) => ({
          id,
          names: names ?? [],
          sizeBytes,
          isUsed: used.has(id),
        }));
      } catch (error) {
        throw toRuntimeUnavailable(error);
      }
    },

    async removeImage(name) {
      const removing = callEngine((abortSignal) => engine.getImage(name).remove({ abortSignal }));
      const removed = await ignoreStatus([404, 409], removing).catch(throwUnavailable);
      return removed !== undefined;
    },

    ensure(spec) {
      // One at a time for each sandbox: a second start after a quick exit would run it again.
      const running = ensuring.get(spec.sandboxId) ?? ensureOnce(spec).finally(() => ensuring.delete(spec.sandboxId));
      ensuring.set(spec.sandboxId, running);
      return running;
    },

    async inspect(sandboxId) {
      try {
        const container = await inspect(sandboxId);
        return container && (await observationOf(engine, container));
      } catch (error) {
        throw toRuntimeUnavailable(error);
      }
    },

    async probe(sandboxId, readinessPort, signal) {
      try {
        signal.throwIfAborted();
        const probing =
          readinessPort === undefined ? probeCommand(sandboxId, signal) : probePort(sandboxId, readinessPort, signal);
        return await probing;
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        throw toRuntimeUnavailable(error);
      }
    },

    async measureDisk(sandboxId, signal) {
      try {
        return await measureDiskUse(engine, sandboxId, diskMb * mebibyte, signal);
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        throw toRuntimeUnavailable(error);
      }
    },

    async stop(sandboxId, graceSeconds) {
      const ending = endingOf(containerOf(sandboxId));
      try {
        if (graceSeconds > 0 && (await ends.terminate(ending, graceSeconds * 1000))) return;
        await ends.kill(ending);
      } catch (error) {
        throw toRuntimeUnavailable(error);
      }
    },

    async remove(sandboxId) {
      addresses.delete(sandboxId);
      const container = containerOf(sandboxId);
      const remove = () => callEngine((abortSignal) => container.remove({ force: true, v: true, abortSignal }));
      // 409: its removal is in progress already.
      await ignoreStatus([404, 409], ends.remove(remove)).catch(throwUnavailable);
    },

    async list() {
      try {
        const containers = await listContainers();
        await networks.update(containers);
        return containers.flatMap((container) => listedOf(container) ?? []);
      } catch (error) {
        throw toRuntimeUnavailable(error);
      }
    },

    async findDataFolder() {
      const { DockerRootDir: folder } = await callEngine(() => engine.info()).catch(throwUnavailable);
      return (await exists(folder)) ? folder : undefined;
    },

    observe: (signal) =>
      observeEngine({
        engine,
        installationId,
        verifyIsolation: async () => {
          await isolation.verify();
        },
        logger,
        signal,
      }),

    // No connection outlives its call.
    close: () => Promise.resolve(),
  };
}

function endingOf(container: Container): Ending {
  return {
    async signal(signal) {
      const sending = callEngine((abortSignal) => container.kill({ signal, abortSignal })).then(() => true);
      return (await ignoreStatus([404, 409], sending)) ?? false;
    },
    // The engine answers this wait when it has released the container's network.
    async hasEndedWithin(timeoutMs) {
      try {
        await ignoreStatus(
          [404],
          callEngine((abortSignal) => container.wait({ abortSignal }), { timeoutMs }),
        );
        return true;
      } catch (error) {
        if (error instanceof Error && error.name === "TimeoutError") return false;
        throw error;
      }
    },
  };
}

/** None would have a limit. */
function requireNoVolumes({ info: { Mounts: mounts } }: InspectedContainer): void {
  const volume = mounts.find(({ Type: type }) => type === "volume");
  if (!volume) return;
  throw new DomainError(
    "PROVISIONING_FAILED",
    `The container could not be started: the image's volume ${volume.Destination} can't be limited in size.`,
  );
}

function throwUnavailable(error: unknown): never {
  throw toRuntimeUnavailable(error);
}

/** PROVISIONING_FAILED with the engine's message, without the layers it came through. */
function toProvisioningFailed(error: unknown): DomainError {
  const message = engineMessageOf(error)
    .replace(/^.*(unable to start container process|container init|create failed): /s, "")
    .replace(/: unknown$/, "");
  return new DomainError("PROVISIONING_FAILED", `The container could not be started: ${message}`, { cause: error });
}
