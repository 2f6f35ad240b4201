import { setTimeout as delay } from "node:timers/promises";
import { type Container, callEngine, type Engine } from "@sandgate/docker-engine/client";
import { engineMessageOf, ignoreStatus, statusOf } from "@sandgate/docker-engine/errors";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { type RuntimeSpec, SandboxRefused, StartFailed } from "../lifecycle.ts";
import { startFailureOf } from "../start-failures.ts";
import { type ContainerAllocation, type ContainerDefaults, containerOptionsOf } from "./container-options.ts";
import { makeFolders } from "./folders.ts";
import type { HelperVolume } from "./helper-volume.ts";
import { createImageCheck, isImageMissing, noPaths } from "./image-check.ts";
import type { Isolation } from "./isolation.ts";
import type { Networks } from "./networks.ts";
import type { InspectedContainer } from "./observation.ts";
import type { EndFlows } from "./stale-flows.ts";
import type { StorageLimit } from "./storage-limit.ts";

/** Attempts of one start to create the container. */
const creationAttempts = 20;
const creationRetryMs = 100;

/** How the OCI runtime and the engine report a fault that may be in the image's own configuration. */
const configurationFault =
  /OCI runtime create failed|unable to find (?:user|group)|no matching entries in (?:passwd|group)|cannot mkdir: [^:]* is not a directory/i;

/** How the engine reports a network without a free address, and one that was removed. */
const networkFull = /no available IPv4 addresses/i;
const networkGone = /network \S+ not found/i;

export interface ContainerStartsOptions {
  engine: Engine;
  inspect(sandboxId: string): Promise<InspectedContainer | undefined>;
  isolation: Pick<Isolation, "endStaleFlows" | "verifyRecent" | "verifyTotals">;
  networks: Pick<Networks, "choose" | "refused">;
  /**
   * Unset: each workspace has networks of its own only where the engine tells containers of others on their network.
   */
  networkPerWorkspace: boolean | undefined;
  helperVolume: HelperVolume;
  storageLimit: StorageLimit;
  defaults: Omit<ContainerDefaults, "limitsDisk">;
}

/**
 * Makes what creates and starts a sandbox's container, unless it has been started before. One call at a time for each
 * sandbox. Throws PROVISIONING_FAILED, StartFailed, ISOLATION_UNAVAILABLE or the engine's error.
 */
export function createContainerStarts(o: ContainerStartsOptions): (spec: RuntimeSpec) => Promise<InspectedContainer> {
  const { engine, helperVolume, inspect, isolation, networks, storageLimit } = o;
  const checkImage = createImageCheck(engine);

  /** Undefined when there is a container of that name already, or its network is gone. */
  async function create(spec: RuntimeSpec, allocation: ContainerAllocation): Promise<Container | undefined> {
    const limitsDisk = storageLimit.isEnforced();
    const description = containerOptionsOf(spec, allocation, { ...o.defaults, limitsDisk });
    try {
      return await callEngine((abortSignal) => engine.createContainer({ ...description, abortSignal }));
    } catch (error) {
      const status = statusOf(error);
      const message = engineMessageOf(error);
      if (limitsDisk && isStorageRefusal(message)) {
        storageLimit.markMissing(message);
        return create(spec, allocation);
      }
      // Created by an earlier attempt, or by another process meanwhile.
      if (status === 409) return undefined;
      if (isImageMissing(error)) {
        throw new DomainError("PROVISIONING_FAILED", "The image is no longer on the engine.", { cause: error });
      }
      if (status === 404 && networkGone.test(message)) {
        networks.refused(allocation.networkName, "gone");
        return undefined;
      }
      throw status === 400 ? toProvisioningFailed(error) : error;
    }
  }

  /**
   * Makes folders in a container and starts it. One whose network is full or gone is removed instead, to be made on
   * another. Answers as `endStaleFlows` does, for one that was started.
   */
  async function start(
    container: Container,
    networkName: string,
    folders: readonly string[],
  ): Promise<EndFlows | undefined> {
    try {
      await makeFolders(container, folders);
      const endFlowsOf = await isolation.endStaleFlows(networkName);
      await ignoreStatus(
        [304],
        callEngine((abortSignal) => container.start({ abortSignal })),
      );
      return endFlowsOf;
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
        return undefined;
      }
      if (status === 400) throw toProvisioningFailed(error);
      throw status === 500 && configurationFault.test(message) ? toStartFailure(error) : error;
    }
  }

  async function requireHelperVolume(reference: string): Promise<string | undefined> {
    try {
      return await helperVolume.require(reference);
    } catch (error) {
      // The creation of the sandbox's own container tells what is wrong with the image.
      if (isImageMissing(error)) return undefined;
      throw error;
    }
  }

  return async (spec) => {
    const host = await isolation.verifyRecent();
    const perWorkspace = o.networkPerWorkspace ?? host.tellsNeighbours;
    let container = await inspect(spec.sandboxId);
    const isNew = container === undefined;
    const paths = container && isStarted(container) ? undefined : await checkImage(spec.reference);
    const { volumes, folders } = paths ?? noPaths;
    let endFlowsOf: EndFlows | undefined;
    // A name can be taken before its container is visible: another process is creating it, or it is being removed.
    for (let attempt = 1; attempt <= creationAttempts; attempt++) {
      if (container && isStarted(container)) break;
      if (container) {
        const { Id: id, HostConfig: host } = container.info;
        endFlowsOf = await start(engine.getContainer(id), host.NetworkMode ?? "", folders);
      } else {
        if (attempt > 1) await delay(creationRetryMs);
        const networkName = await networks.choose(spec.workspaceId, { perWorkspace });
        const helper = await requireHelperVolume(spec.reference);
        const env = (await spec.env?.find()) ?? {};
        const { cgroupParent, isRootless } = host;
        const created = await create(spec, { networkName, cgroupParent, isRootless, volumes, env, helper });
        if (created) endFlowsOf = await start(created, networkName, folders);
      }
      container = await inspect(spec.sandboxId);
    }
    // Another installation's container has the name, or it was removed at once.
    if (!container || !isStarted(container)) {
      throw new DomainError("RUNTIME_UNAVAILABLE", "The container disappeared after it was created.");
    }
    if (isNew) requireNoVolumes(container);
    const [network] = Object.values(container.info.NetworkSettings.Networks);
    if (network?.IPAddress) await endFlowsOf?.(network.IPAddress);
    await isolation.verifyTotals();
    return container;
  };
}

/** Whether the engine refused a limit of the container's disk. */
function isStorageRefusal(message: string): boolean {
  return /storage-opt/i.test(message) || (/storage driver/i.test(message) && /quota|size/i.test(message));
}

function isStarted({ info }: InspectedContainer): boolean {
  return info.State.Status !== "created";
}

/** A volume would have no limit, but for the helper's, which can't be written to. */
function requireNoVolumes({ info: { Mounts: mounts } }: InspectedContainer): void {
  const volume = mounts.find(({ Type: type, RW: isWritable }) => type === "volume" && isWritable);
  if (!volume) return;
  throw new DomainError(
    "PROVISIONING_FAILED",
    `The container could not be started: the size of the image's volume ${volume.Destination} can't be limited.`,
  );
}

function toProvisioningFailed(error: unknown): DomainError {
  return new SandboxRefused(startFailureOf(engineMessageOf(error)), { cause: error });
}

/** The OCI runtime fails in the same way for want of processes, or where a control group is busy. */
function toStartFailure(error: unknown): DomainError {
  const { isFinal, ...failure } = startFailureOf(engineMessageOf(error));
  return isFinal ? toProvisioningFailed(error) : new StartFailed(failure, { cause: error });
}
