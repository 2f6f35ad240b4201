import { createClient } from "@connectrpc/connect";
import { stateOf } from "@sandgate/kit/base/dependencies";
import { DomainError, messageOf } from "@sandgate/kit/base/domain-error";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { defineService, type ServiceContext, type ServiceParts } from "@sandgate/kit/process/service";
import { openShards } from "@sandgate/kit/process/shards";
import { asService } from "@sandgate/kit/rpc/context";
import { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import { AuditService } from "@sandgate/proto/telemetry/v1/audit";
import { TelemetryService } from "@sandgate/proto/telemetry/v1/telemetry";
import { type AuditFile, startAuditFile } from "./audit/audit-file.ts";
import { consumeAuditedEvents } from "./audit/from-events.ts";
import { createAuditHandlers } from "./audit/handlers.ts";
import { type Collection, createCollection } from "./collect/collection.ts";
import { watchPollRequests } from "./collect/log-drain.ts";
import type { IngestClient } from "./collect/source-writer.ts";
import { stagePurged } from "./events.ts";
import { createHandlers } from "./handlers.ts";
import { type NodeCollector, startNodeCollector } from "./node-collector.ts";
import { startRetention } from "./retention.ts";
import { openRoom } from "./room.ts";
import { collectorSettings, type TelemetrySettings, telemetrySettings } from "./settings.ts";
import { purgeLimits } from "./store/chunks.ts";
import type { TelemetryStore } from "./store/store.ts";

export { collectorSettings, telemetrySettings };

/** The service that collects, stores and returns what sandboxes log and use. */
export const telemetryService = defineService({
  name: "telemetry",
  settings: telemetrySettings,
  stores: { sqlite: () => import("./store/store.sqlite.ts"), mongodb: () => import("./store/store.mongo.ts") },
  open: openTelemetryService,
});

async function openTelemetryService(context: ServiceContext<TelemetrySettings, TelemetryStore>): Promise<ServiceParts> {
  const { bus, logger, metrics, settings, store } = context;
  // Imported here, so that whoever only reads the settings doesn't load a client of the engine.
  const { openDockerContainerSource } = await import("./docker/container-source.docker.ts");
  const draining = new AbortController();
  let auditFile: AuditFile | undefined;
  const room = openRoom({ ...context, reserveMb: settings.diskReserveMb });

  const sandboxes = createClient(SandboxService, context.transport("sandbox"));
  const client = createClient(TelemetryService, context.transport("telemetry"));
  const collection = settings.runtime.startsWith("kubernetes:")
    ? createPodCollection({ ...context, client })
    : createCollection({
        openContainers: (installationId) =>
          openDockerContainerSource({ address: settings.runtime, installationId, logger, metrics }),
        sandboxes,
        client,
        openShards: () => openShards(context),
        bus,
        logger,
        metrics,
      });

  return {
    routes(router) {
      router.service(
        TelemetryService,
        createHandlers({
          store,
          bus,
          metrics,
          quotas: {
            sandboxBytes: settings.logQuotaMb * mebibyte,
            workspaceBytes: settings.workspaceLogQuotaMb * mebibyte,
          },
          shortage: room.shortage,
          containers: collection.containers,
          isCollected: collection.isCollected,
          async findWorkspace(sandboxId, signal) {
            const { workspaceId } = await sandboxes.getSandboxWorkspace({ sandboxId }, asService({ signal }));
            return workspaceId;
          },
          draining: draining.signal,
        }),
      );
      router.service(AuditService, createAuditHandlers(store));
    },
    async start() {
      if (settings.auditFile !== undefined) auditFile = startAuditFile({ path: settings.auditFile, store, logger });
      return [
        collection.start(),
        ...startRetention({
          store,
          retentionDays: settings.retentionDays,
          auditRetentionDays: settings.auditRetentionDays,
          logTotalBytes: settings.logTotalMb * mebibyte,
          logger,
          metrics,
        }),
        await consumeAuditedEvents({ store, bus }),
        ...(auditFile ? [auditFile] : []),
      ];
    },
    purge: {
      store,
      workspacePurged: stagePurged,
      async purge(workspaceId, signal) {
        while (await store.purgeBatch(workspaceId, purgeLimits)) if (signal.aborted) return false;
        return true;
      },
    },
    async dependencies() {
      const [database, shortage] = await Promise.all([
        stateOf(store.listOpenPurges()),
        room.shortage().catch(messageOf),
      ]);
      const disk = context.database.kind === "sqlite" && { disk: shortage ?? "ok" };
      return { database, runtime: collection.state(), ...disk, ...(auditFile && { audit_file: auditFile.state() }) };
    },
    endWaits: () => draining.abort(new DomainError("DRAINING", "telemetry is shutting down.")),
  };
}

/** Sandboxes are pods: a process on each node collects, or on its own node this one, when it is given the kubelet there. */
function createPodCollection(
  o: ServiceContext<TelemetrySettings, TelemetryStore> & { client: IngestClient },
): Collection {
  const { bus, client, logger, metrics, settings } = o;
  const { kubeletUrl } = settings;
  // No process elsewhere can call one that has the whole platform.
  const isCollected = kubeletUrl !== undefined || o.database.kind === "mongodb";
  let collector: NodeCollector | undefined;
  return {
    containers: Promise.resolve(undefined),
    isCollected,
    state: () => collector?.state() ?? (isCollected ? "ok" : "nobody collects logs: set SANDGATE_KUBELET_URL"),
    start() {
      collector =
        kubeletUrl === undefined
          ? undefined
          : startNodeCollector({
              settings: { ...settings, kubeletUrl },
              client,
              watchDrains: (signal) => watchPollRequests(bus, signal),
              logger,
              metrics,
            });
      return { stop: async () => collector?.stop() };
    },
  };
}
