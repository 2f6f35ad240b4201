import { containerNameOf, identityOf, installationSelector } from "@sandgate/container-labels";
import { callEngine, openEngine } from "@sandgate/docker-engine/client";
import { ignoreStatus } from "@sandgate/docker-engine/errors";
import { openContainerEvents } from "@sandgate/docker-engine/events";
import type { Logger } from "@sandgate/kit/base/logging";
import type { Metrics } from "@sandgate/kit/base/metrics";
import type { Container, ContainerSource } from "../collect/container-source.ts";
import { createLogReader } from "./log-reader.ts";
import { createSamplers } from "./samplers.ts";

/** The containers of a Docker-compatible engine, without a terminal. Nothing is connected before the first call. */
export function openDockerContainerSource(o: {
  /** `docker:///var/run/docker.sock` or `docker://host:port`. */
  address: string;
  installationId: string;
  logger: Logger;
  metrics: Metrics;
}): ContainerSource {
  const { installationId, logger, metrics } = o;
  const engine = openEngine(o.address, metrics);
  const readLogs = createLogReader(engine, logger);

  /** By id or name; nothing when there is none, or it is another installation's. */
  async function inspect(name: string, signal: AbortSignal): Promise<Container | undefined> {
    const container = engine.getContainer(name);
    const found = await ignoreStatus(
      [404],
      callEngine((abortSignal) => container.inspect({ abortSignal }), { signal }),
    );
    if (!found || identityOf(found.Config.Labels)?.installationId !== installationId) return undefined;
    return toContainer(found.Id, found.Config.Labels, found.State.Status);
  }

  return {
    async list({ sandboxId, signal }) {
      if (sandboxId !== undefined) {
        // Its only one, by its name: for a list the engine goes through all that it has.
        const container = await inspect(containerNameOf(sandboxId), signal);
        return container ? [container] : [];
      }
      const filters = { label: [installationSelector(installationId)] };
      const found = await callEngine((abortSignal) => engine.listContainers({ all: true, filters, abortSignal }), {
        signal,
      });
      return found.flatMap(({ Id, Labels, State }) => toContainer(Id, Labels, State) ?? []);
    },
    inspect,
    async *watch(signal) {
      const actions = ["start", "kill", "die", "destroy"] as const;
      yield* await openContainerEvents(engine, { installationId, actions, signal });
    },
    readLogs,
    openSampler: createSamplers({ engine, logger, metrics }),
  };
}

function toContainer(id: string, labels: Record<string, string>, status: string): Container | undefined {
  const identity = identityOf(labels);
  return identity && { id, sandboxId: identity.sandboxId, state: toState(status) };
}

function toState(status: string): Container["state"] {
  if (status === "created") return "created";
  return status === "exited" || status === "dead" || status === "removing" ? "ended" : "running";
}
