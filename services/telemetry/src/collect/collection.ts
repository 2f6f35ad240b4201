import type { Client } from "@connectrpc/connect";
import { messageOf } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import type { Metrics } from "@sandgate/kit/base/metrics";
import { startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { BackgroundTask } from "@sandgate/kit/process/service";
import type { Shards } from "@sandgate/kit/process/shards";
import { asService } from "@sandgate/kit/rpc/context";
import type { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import { onListingRequest, watchListingRequests } from "../events.ts";
import { startCollector } from "./collector.ts";
import type { ContainerSource, NodeSource } from "./container-source.ts";
import { type NodeCollector, startNodeCollector } from "./node-collector.ts";
import type { IngestClient } from "./source-writer.ts";

/** The sandbox service may not answer yet. */
const startRetryMs = 2_000;

/** This replica's part in collecting. */
export interface Collection {
  /** Resolves when the collector starts; undefined: only collectors on the nodes of a cluster see containers. */
  readonly containers: Promise<ContainerSource | undefined>;
  /** "ok", or why nothing is collected. */
  state(): string;
  start(): BackgroundTask;
}

/**
 * Collects from an engine or an API server, which replicas share, once the sandbox service has given the installation's
 * id.
 */
export function createEngineCollection(o: {
  openContainers(installationId: string): ContainerSource;
  sandboxes: Pick<Client<typeof SandboxService>, "getInstallation">;
  client: IngestClient;
  openShards(): Shards;
  bus: EventBus;
  logger: Logger;
  metrics: Metrics;
}): Collection {
  const { client, bus, logger, metrics } = o;
  const started = Promise.withResolvers<ContainerSource>();
  let state = () => "ok";
  let stop: (() => Promise<void>) | undefined;

  async function open(signal: AbortSignal): Promise<ContainerSource> {
    const { installationId } = await o.sandboxes.getInstallation({}, asService({ signal })).catch((cause: unknown) => {
      throw new Error(`the sandbox service does not answer: ${messageOf(cause)}`, { cause });
    });
    return o.openContainers(installationId);
  }

  async function begin(signal: AbortSignal): Promise<void> {
    if (stop) return;
    const containers = await open(signal).catch((error: unknown) => {
      state = () => messageOf(error);
      throw error;
    });
    const shards = o.openShards();
    const collector = startCollector({ containers, client, shards, logger, metrics });
    const unwatch = onListingRequest(bus, (sandboxId) => collector.poll(sandboxId));
    state = () => collector.state();
    stop = async () => {
      unwatch();
      // Another replica may begin while this one stores its last batches: cursors keep each from storing the other's.
      await Promise.all([shards.stop(), collector.stop()]);
    };
    started.resolve(containers);
  }

  return {
    containers: started.promise,
    state: () => state(),
    start() {
      const starting = startPeriodicTask({
        what: "start collecting telemetry",
        everyMs: startRetryMs,
        logger,
        work: begin,
      });
      return {
        async stop() {
          await starting.stop();
          await stop?.();
        },
      };
    },
  };
}

/**
 * Collects from the pods of this process's own node, if it is given them. Every other node has a collector of its own.
 */
export function createNodeCollection(o: {
  containers: NodeSource | undefined;
  client: IngestClient;
  bus: EventBus;
  logger: Logger;
  metrics: Metrics;
}): Collection {
  const { containers, client, bus, logger, metrics } = o;
  let collector: NodeCollector | undefined;
  return {
    containers: Promise.resolve(undefined),
    state: () => collector?.state() ?? "ok",
    start() {
      const watchDrains = (signal: AbortSignal) => watchListingRequests(bus, signal);
      collector = containers && startNodeCollector({ containers, client, watchDrains, logger, metrics });
      return { stop: async () => collector?.stop() };
    },
  };
}
