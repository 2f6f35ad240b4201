import type { Logger } from "@sandgate/kit/base/logging";
import type { Metrics } from "@sandgate/kit/base/metrics";
import { startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { allShards } from "@sandgate/kit/process/shards";
import { startCollector } from "./collector.ts";
import type { NodeSource } from "./container-source.ts";
import type { IngestClient } from "./source-writer.ts";

export type { NodeSource };

const rewatchMs = 1_000;
/**
 * Batches of a node that are being stored at once. Few, since there may be a hundred nodes: what a slow store has not
 * taken yet gathers here, in larger batches, instead of in calls that wait there until they time out. Samples, of which
 * there may be more, get no more of a slow store than lines.
 */
const maxBatches = { logs: 4, metrics: 4 };

/** Collects the logs and samples of the sandboxes of one node. */
export interface NodeCollector {
  /** "ok", or why the node's logs or figures can't be read. */
  state(): string;
  /** Stops every reader. What was not stored is read again next time. */
  stop(): Promise<void>;
}

export function startNodeCollector(o: {
  containers: NodeSource;
  client: IngestClient;
  /** The sandboxes whose containers have ended, each repeated until its log is stored. */
  watchDrains(signal: AbortSignal): AsyncIterable<string>;
  logger: Logger;
  metrics: Metrics;
}): NodeCollector {
  const { containers, client, logger, metrics } = o;
  const collector = startCollector({ containers, client, shards: allShards, maxBatches, logger, metrics });
  const watching = startPeriodicTask({
    what: "watch which logs are to be read to their ends",
    everyMs: rewatchMs,
    logger,
    async work(signal) {
      for await (const sandboxId of o.watchDrains(signal)) {
        if (await containers.markEnded(sandboxId)) collector.poll(sandboxId);
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
