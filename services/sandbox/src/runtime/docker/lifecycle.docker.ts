import { containerNameOf, installationSelector } from "@sandgate/container-labels";
import { type Container, type ContainerInfo, callEngine, type Engine } from "@sandgate/docker-engine/client";
import { ignoreStatus, throwUnavailable, toRuntimeUnavailable } from "@sandgate/docker-engine/errors";
import type { Logger } from "@sandgate/kit/base/logging";
import type { Observation, RuntimeLifecycle, RuntimeSpec } from "../lifecycle.ts";
import type { ContainerDefaults } from "./container-options.ts";
import { createContainerStarts } from "./container-starts.ts";
import type { HelperVolume } from "./helper-volume.ts";
import type { Isolation } from "./isolation.ts";
import type { Networks } from "./networks.ts";
import { inspectContainer, listedOf, observationOf } from "./observation.ts";
import { observeEngine } from "./observe.ts";
import { createReadinessProbe } from "./probe.ts";
import { createStorageLimit } from "./storage-limit.ts";
import { createTerminations, type TerminableContainer } from "./terminations.ts";

/**
 * Containers that are terminated or removed at once. More don't make it quicker: it takes the engine processor time.
 */
const terminationsAtOnce = 16;

/** The life of sandboxes as containers of a Docker-compatible engine. */
export function createDockerLifecycle(o: {
  engine: Engine;
  isolation: Isolation;
  networks: Networks;
  networkPerWorkspace: boolean | undefined;
  helperVolume: HelperVolume;
  defaults: Omit<ContainerDefaults, "limitsDisk">;
  logger: Logger;
}): RuntimeLifecycle {
  const { engine, isolation, networks, logger } = o;
  const { installationId } = o.defaults;
  const containerOf = (sandboxId: string) => engine.getContainer(containerNameOf(sandboxId));
  const inspect = (sandboxId: string) => inspectContainer(engine, containerNameOf(sandboxId), { installationId });

  const storageLimit = createStorageLimit({ engine, logger });
  const start = createContainerStarts({ ...o, inspect, storageLimit });
  const terminations = createTerminations({ atOnce: terminationsAtOnce });
  const probe = createReadinessProbe({ engine, inspect });
  const ensuring = new Map<string, Promise<Observation>>();

  async function ensureOnce(spec: RuntimeSpec): Promise<Observation> {
    const container = await start(spec);
    probe.note(spec.sandboxId, container);
    return observationOf(engine, container);
  }

  async function listContainers(): Promise<ContainerInfo[]> {
    const filters = { label: [installationSelector(installationId)] };
    return callEngine((abortSignal) => engine.listContainers({ all: true, filters, abortSignal }));
  }

  return {
    async check() {
      await isolation.verify();
      await storageLimit.check().catch(throwUnavailable);
    },

    ensure(spec) {
      const { sandboxId } = spec;
      // One at a time for each sandbox: a second start after a quick exit would run it again.
      const running =
        ensuring.get(sandboxId) ??
        ensureOnce(spec)
          .catch(throwUnavailable)
          .finally(() => ensuring.delete(sandboxId));
      ensuring.set(sandboxId, running);
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

    probe: probe.run,

    async stop(sandboxId, graceSeconds) {
      const container = terminable(containerOf(sandboxId));
      try {
        if (graceSeconds > 0 && (await terminations.terminate(container, graceSeconds * 1000))) return;
        await terminations.kill(container);
      } catch (error) {
        throw toRuntimeUnavailable(error);
      }
    },

    async remove(sandboxId) {
      probe.forget(sandboxId);
      const container = containerOf(sandboxId);
      const remove = () => callEngine((abortSignal) => container.remove({ force: true, v: true, abortSignal }));
      // 409: its removal is in progress already.
      await ignoreStatus([404, 409], terminations.remove(remove)).catch(throwUnavailable);
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

    observe: (signal) => observeEngine({ engine, installationId, verifyIsolation: isolation.verify, logger, signal }),
  };
}

function terminable(container: Container): TerminableContainer {
  return {
    async signal(signal) {
      const sending = callEngine((abortSignal) => container.kill({ signal, abortSignal })).then(() => true);
      return (await ignoreStatus([404, 409], sending)) ?? false;
    },
    // The engine answers this wait when it has released the container's network.
    async hasExitedWithin(timeoutMs) {
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
