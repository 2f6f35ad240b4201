import { join } from "node:path";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { asFacade, asService } from "@sandgate/kit/rpc/context";
import type { QueryTelemetryResponse } from "@sandgate/proto/telemetry/v1/telemetry";
import { openNodePods } from "../kubernetes/node-pods.ts";
import { openTestService, type TestService } from "../service.fixture.ts";
import type { NodeSettings } from "../settings.ts";
import { type NodeCollector, startNodeCollector } from "./node-collector.ts";

/** The service, and collectors of a node that send it what they read. */
export interface TestNode {
  telemetry: TestService;
  /** A collector, which calls as one, with these settings instead of the node's. */
  startCollector(changes?: Partial<NodeSettings>): NodeCollector;
  /** Stops all that were started so far. */
  stopCollectors(): Promise<void>;
  /** The newest 10,000 lines and samples of a sandbox, as a member of the workspace sees them. */
  query(sandboxId: string, workspaceId: string): Promise<QueryTelemetryResponse>;
  readLines(sandboxId: string, workspaceId: string): Promise<string[]>;
  /** Whether its log was read to the end within that time. */
  awaitDrained(sandboxId: string, timeoutSeconds?: number): Promise<boolean>;
  close(): Promise<void>;
}

/** What the service, and the collectors of its tests, write. */
export const logger = createLogger({ service: "telemetry", level: process.env.SANDGATE_LOG_LEVEL ?? "silent" });

interface PodTelemetryOptions {
  /** For files of the service's. */
  folder: string;
  /** What sandbox says whose a sandbox is. */
  workspaceOf(sandboxId: string): string | undefined;
}

/** The service with sandboxes as pods and a bus of its own. It collects nothing itself: the tests' collectors do. */
export async function openPodTelemetry({ folder, workspaceOf }: PodTelemetryOptions): Promise<TestService> {
  const bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics: createMetrics() });
  const telemetry = await openTestService({
    runtime: "kubernetes:",
    installationId: newId(),
    database: { kind: "sqlite", file: join(folder, "telemetry.sqlite") },
    bus,
    keysFile: join(folder, "keys.json"),
    logger,
    workspaceOf,
    settings: { SANDGATE_KUBELET_URL: "https://127.0.0.1:1", SANDGATE_POD_LOGS: join(folder, "other-node") },
  });
  return {
    ...telemetry,
    async close() {
      await telemetry.close();
      await bus.close();
    },
  };
}

export async function openTestNode(o: PodTelemetryOptions & { settings: NodeSettings }): Promise<TestNode> {
  const telemetry = await openPodTelemetry(o);
  let collectors: NodeCollector[] = [];
  const stopCollectors = async () => {
    const stopping = collectors.map((collector) => collector.stop());
    collectors = [];
    await Promise.all(stopping);
  };
  const node: TestNode = {
    telemetry,
    startCollector(changes) {
      const client = telemetry.as.collector;
      const metrics = createMetrics();
      const collector = startNodeCollector({
        containers: openNodePods({ ...o.settings, ...changes, logger, metrics }),
        client,
        async *watchDrains(signal) {
          for await (const { sandboxId } of client.watchDrains({}, asService({ signal, timeoutMs: 0 }))) {
            yield sandboxId;
          }
        },
        logger,
        metrics,
      });
      collectors.push(collector);
      return collector;
    },
    stopCollectors,
    query(sandboxId, workspaceId) {
      const user = { id: "u1", credential: "session", credentialId: "s1", operator: false } as const;
      const call = asFacade({ requestId: newId(), user: { ...user, workspaceId, role: "member" } });
      const query = { sandboxId, includeLogs: true, includeMetrics: true, limit: 10_000 };
      return telemetry.as.facade.queryTelemetry(query, call);
    },
    readLines: async (sandboxId, workspaceId) => (await node.query(sandboxId, workspaceId)).logs.map(({ log }) => log),
    async awaitDrained(sandboxId, timeoutSeconds = 60) {
      const call = asService({ timeoutMs: 0 });
      return (await telemetry.as.sandbox.awaitDrained({ sandboxId, timeoutSeconds }, call)).drained;
    },
    async close() {
      await stopCollectors();
      await telemetry.close();
    },
  };
  return node;
}
