import { type ContainerStats, callEngine, type Engine } from "@sandgate/docker-engine/client";
import { ignoreStatus } from "@sandgate/docker-engine/errors";
import { messageOf } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import { counter, type Metrics } from "@sandgate/kit/base/metrics";
import pLimit from "p-limit";
import type { ContainerSource, Sampler } from "../collect/container-source.ts";
import { fromMillis, type MetricRow } from "../domain/rows.ts";
import { createTimeParser } from "../domain/time-text.ts";
import { type Cgroup, createCgroupFinder, workingSet } from "./cgroups.ts";

/**
 * Calls for samples at once. Engines up to 20.10 answer one at the next of their own rounds, which come once a second
 * and take longer the more are waiting, so many wait at a time. A stream for each container would cost the engine five
 * times as much, a sample each second.
 */
const maxEngineSamples = 256;

/**
 * Runtimes whose containers' figures the engine takes from cgroups itself; others, gVisor's for one, have their own.
 */
const cgroupRuntimes = new Set(["runc", "crun", "io.containerd.runc.v2"]);

/**
 * Samples from the cgroup files where this process can read them, and by calls of the engine elsewhere: of a container
 * of another host, or when processes and cgroups of the host can't be seen from here. Each source is logged when it is
 * first used.
 */
export function createSamplers(o: {
  engine: Engine;
  logger: Logger;
  metrics: Metrics;
  /** /proc unless given. */
  proc?: string;
}): ContainerSource["openSampler"] {
  const { engine, logger } = o;
  const parseTime = createTimeParser();
  const engineLimit = pLimit(maxEngineSamples);
  const findCgroup = createCgroupFinder({ proc: o.proc });
  const samples = counter(o.metrics, {
    name: "sandgate_telemetry_samples_total",
    help: "Samples of CPU and memory that were taken, by where they came from",
    labelNames: ["source"],
  });
  const logged = new Set<string>();

  function countSample(source: "cgroup" | "engine", details: object): void {
    samples.inc({ source });
    if (logged.has(source)) return;
    logged.add(source);
    const from = source === "cgroup" ? "cgroup files" : "calls of the container engine";
    logger.info(details, `samples of CPU and memory come from ${from}`);
  }

  /** Undefined when the container isn't running; a text when its cgroup can't be read, the reason. */
  async function find(containerId: string, signal: AbortSignal): Promise<Cgroup | string | undefined> {
    const container = engine.getContainer(containerId);
    const found = await ignoreStatus(
      [404],
      callEngine((abortSignal) => container.inspect({ abortSignal }), { signal }),
    );
    if (!found?.State.Pid) return undefined;
    const runtime: string | undefined = found.HostConfig.Runtime;
    if (runtime && !cgroupRuntimes.has(runtime)) return `the runtime ${runtime} has figures of its own`;
    try {
      return await findCgroup({ containerId, pid: found.State.Pid });
    } catch (error) {
      return messageOf(error);
    }
  }

  async function askEngine(containerId: string, signal: AbortSignal): Promise<MetricRow | undefined> {
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
  }

  return (containerId): Sampler => {
    let source: Cgroup | string | undefined;
    return async (signal) => {
      source ??= await find(containerId, signal);
      if (source === undefined) return undefined;
      if (typeof source !== "string") {
        const counters = source.read();
        if (!counters) return undefined;
        countSample("cgroup", { version: source.version });
        return { timeNs: fromMillis(Date.now()), ...counters };
      }
      const sample = await engineLimit(() => askEngine(containerId, signal));
      if (sample) countSample("engine", { reason: source });
      return sample;
    };
  };
}

function toSample(stats: ContainerStats, parseTime: (text: string) => bigint): MetricRow | undefined {
  // Of a container that has ended the engine gives a time of the year 1 and no figures; of some kernels not all of
  // these.
  const { usage, stats: pages }: { usage?: number; stats?: Partial<Record<string, number>> } = stats.memory_stats;
  if (usage === undefined || stats.read.startsWith("0001")) return undefined;
  // On cgroup v1 `total_inactive_file` includes child groups; v2 has only `inactive_file`.
  const inactive = pages?.total_inactive_file ?? pages?.inactive_file ?? 0;
  return {
    timeNs: parseTime(stats.read),
    cpuSeconds: stats.cpu_stats.cpu_usage.total_usage / 1e9,
    memoryBytes: workingSet(usage, inactive),
  };
}
