import type { Logger } from "@sandgate/kit/base/logging";
import type { Metrics } from "@sandgate/kit/base/metrics";
import { startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { allShards } from "@sandgate/kit/process/shards";
import { startCollector } from "./collect/collector.ts";
import type { IngestClient } from "./collect/source-writer.ts";
import { openKubeletSamples } from "./kubernetes/kubelet-samples.ts";
import { openPodSource } from "./kubernetes/pod-source.ts";
import type { NodeSettings } from "./settings.ts";

const rewatchMs = 1_000;

/** Collects the logs and samples of the sandboxes' pods of one node. */
export interface NodeCollector {
  /** "ok", or why the node's logs can't be read. */
  state(): string;
  /** Stops every reader. What was not stored is read again next time. */
  stop(): Promise<void>;
}

export function startNodeCollector(o: {
  settings: NodeSettings;
  client: IngestClient;
  /** The sandboxes whose containers have ended, told again until their logs are stored. */
  watchDrains(signal: AbortSignal): AsyncIterable<string>;
  logger: Logger;
  metrics: Metrics;
}): NodeCollector {
  const { settings, client, logger, metrics } = o;
  const pods = openPodSource({
    folder: settings.podLogs,
    namespace: settings.namespace,
    samples: openKubeletSamples({
      url: settings.kubeletUrl,
      tokenFile: settings.kubeletTokenFile,
      caFile: settings.kubeletVerify ? settings.kubeletCaFile : undefined,
      metrics,
    }),
    logger,
  });
  const collector = startCollector({ containers: pods, client, shards: allShards, logger, metrics });
  const watching = startPeriodicTask({
    what: "learn which logs are to be read to their ends",
    everyMs: rewatchMs,
    logger,
    async work(signal) {
      for await (const sandboxId of o.watchDrains(signal)) {
        if (await pods.markEnded(sandboxId)) collector.poll(sandboxId);
      }
    },
  });
  return {
    state: () => collector.state(),
    async stop() {
      await Promise.all([watching.stop(), collector.stop()]);
    },
  };
}
