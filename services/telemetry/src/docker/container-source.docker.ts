import { type ContainerStats, callEngine, openEngine } from "@sandgate/docker-engine/client";
import { labelFilter, ownerOf } from "@sandgate/docker-engine/containers";
import { ignoreStatus } from "@sandgate/docker-engine/errors";
import { openContainerEvents } from "@sandgate/docker-engine/events";
import type { Logger } from "@sandgate/kit/base/logging";
import type { Container, ContainerSource } from "../collect/container-source.ts";
import type { MetricRow } from "../store/rows.ts";
import { createTimeParser } from "./log-frames.ts";
import { createLogReader } from "./log-reader.ts";

/** The containers of a Docker-compatible engine, without a terminal. Nothing is connected before the first call. */
export function openDockerContainerSource(o: {
  /** `docker:///var/run/docker.sock` or `docker://host:port`. */
  address: string;
  installationId: string;
  logger: Logger;
}): ContainerSource {
  const { installationId, logger } = o;
  const engine = openEngine(o.address);
  const parseTime = createTimeParser();
  const readLogs = createLogReader(engine, logger);

  return {
    async list({ sandboxId, signal }) {
      const filters = { label: labelFilter(installationId, sandboxId) };
      const found = await callEngine((abortSignal) => engine.listContainers({ all: true, filters, abortSignal }), {
        signal,
      });
      return found.flatMap(({ Id, Labels, State }) => toContainer(Id, Labels, State) ?? []);
    },
    async inspect(containerId, signal) {
      const container = engine.getContainer(containerId);
      const found = await ignoreStatus(
        [404],
        callEngine((abortSignal) => container.inspect({ abortSignal }), { signal }),
      );
      return found && toContainer(found.Id, found.Config.Labels, found.State.Status);
    },
    async *watch(signal) {
      const actions = ["start", "kill", "die", "destroy"] as const;
      yield* await openContainerEvents(engine, { installationId, actions, signal });
    },
    readLogs,
    async sample(containerId, signal) {
      const container = engine.getContainer(containerId);
      const stats = await ignoreStatus(
        [404],
        callEngine(
          (abortSignal) => {
            // dockerode takes the signal here too; its types don't know that.
            const options = { stream: false, "one-shot": true, abortSignal } as const;
            return container.stats(options);
          },
          { signal },
        ),
      );
      return stats && toSample(stats, parseTime);
    },
  };
}

function toContainer(id: string, labels: Record<string, string>, status: string): Container | undefined {
  const owner = ownerOf(labels);
  return owner && { id, sandboxId: owner.sandboxId, workspaceId: owner.workspaceId, state: toState(status) };
}

function toState(status: string): Container["state"] {
  if (status === "created") return "created";
  return status === "exited" || status === "dead" || status === "removing" ? "ended" : "running";
}

/** Memory is the working set as the kubelet computes it: usage without the file pages that the kernel would reclaim first. */
function toSample(stats: ContainerStats, parseTime: (text: string) => bigint): MetricRow | undefined {
  // Of a container that has ended the engine gives a time of the year 1 and no figures; of some kernels not all of these.
  const { usage, stats: pages }: { usage?: number; stats?: Partial<Record<string, number>> } = stats.memory_stats;
  if (usage === undefined || stats.read.startsWith("0001")) return undefined;
  // On cgroup v1 `total_inactive_file` includes child groups; v2 has only `inactive_file`.
  const inactive = pages?.total_inactive_file ?? pages?.inactive_file ?? 0;
  return {
    timeNs: parseTime(stats.read),
    cpuSeconds: stats.cpu_stats.cpu_usage.total_usage / 1e9,
    memoryBytes: Math.max(0, usage - inactive),
  };
}
