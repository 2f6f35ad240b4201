import { stateOf } from "@sandgate/kit/base/dependencies";
import { DomainError, messageOf } from "@sandgate/kit/base/domain-error";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { defineService, type ServiceContext, type ServiceParts } from "@sandgate/kit/process/service";
import { openShards } from "@sandgate/kit/process/shards";
import { createClient } from "@sandgate/kit/rpc/create-client";
import { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import { AuditService } from "@sandgate/proto/telemetry/v1/audit";
import { TelemetryService } from "@sandgate/proto/telemetry/v1/telemetry";
import { type AuditFile, startAuditFile } from "./audit/audit-file.ts";
import { createEngineCollection, createNodeCollection } from "./collect/collection.ts";
import type { ContainerSource } from "./collect/container-source.ts";
import { consumeEvents } from "./consumers.ts";
import { purgeLimits } from "./domain/removals.ts";
import { workspacePurged } from "./events.ts";
import { createAuditHandlers } from "./handlers/audit.ts";
import { createTelemetryHandlers } from "./handlers/telemetry.ts";
import { openNodePods } from "./kubernetes/node-pods.ts";
import { collectorSettings, type TelemetrySettings, telemetrySettings } from "./settings.ts";
import type { TelemetryStore } from "./store/store.ts";
import { openDiskShortage } from "./usecases/disk-shortage.ts";
import { createIngest } from "./usecases/ingest.ts";
import { createWorkspaceLookup } from "./usecases/ownership.ts";
import { startRetention } from "./usecases/retention.ts";

export { collectorSettings, telemetrySettings };

/** The service that collects, stores and returns what sandboxes log and use. */
export const telemetryService = defineService({
  name: "telemetry",
  settings: telemetrySettings,
  stores: { sqlite: () => import("./store/store.sqlite.ts"), mongodb: () => import("./store/store.mongo.ts") },
  open: openTelemetryService,
});

type Context = ServiceContext<TelemetrySettings, TelemetryStore>;
type OpenContainers = (installationId: string) => ContainerSource;

async function openTelemetryService(context: Context): Promise<ServiceParts> {
  const { bus, logger, metrics, settings, store } = context;
  const draining = new AbortController();
  let auditFile: AuditFile | undefined;
  const shortage = openDiskShortage({ ...context, file: store.file, reserveMb: settings.diskReserveMb });
  const sandboxes = createClient(SandboxService, context.transport("sandbox"));
  const collection = await createCollection(context);
  const quotas = {
    sandboxBytes: settings.logQuotaMb * mebibyte,
    workspaceBytes: settings.workspaceLogQuotaMb * mebibyte,
  };

  return {
    routes(router) {
      router.service(
        TelemetryService,
        createTelemetryHandlers({
          store,
          bus,
          ingest: createIngest({ sources: store.sources, bus, metrics, quotas, shortage }),
          containers: collection.containers,
          findWorkspace: createWorkspaceLookup({ sources: store.sources, sandboxes }),
          draining: draining.signal,
        }),
      );
      router.service(AuditService, createAuditHandlers(store.audit));
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
        await consumeEvents(context),
        ...(auditFile ? [auditFile] : []),
      ];
    },
    purge: {
      store: store.purges,
      workspacePurged,
      async purge(workspaceId, signal) {
        while (await store.retention.purgeBatch(workspaceId, purgeLimits)) if (signal.aborted) return false;
        return true;
      },
    },
    async dependencies() {
      const [database, disk] = await Promise.all([stateOf(store.purges.listOpenPurges()), shortage().catch(messageOf)]);
      return {
        database,
        runtime: collection.state(),
        ...(store.file && { disk: disk ?? "ok" }),
        ...(auditFile && { audit_file: auditFile.state() }),
      };
    },
    endWaits: () => draining.abort(new DomainError("DRAINING", "telemetry is shutting down.")),
  };
}

async function createCollection(context: Context) {
  const { bus, database, logger, metrics, settings } = context;
  const client = createClient(TelemetryService, context.transport("telemetry"));
  const { kubeletUrl, runtime } = settings;
  const isCluster = runtime.startsWith("kubernetes:");
  // No collector elsewhere can call a process that has the whole platform.
  const hasCollectors = settings.podTelemetry === "collectors" && database.kind === "mongodb";
  if (isCluster && (kubeletUrl !== undefined || hasCollectors)) {
    return createNodeCollection({
      containers: kubeletUrl === undefined ? undefined : openNodePods({ ...settings, kubeletUrl, logger, metrics }),
      client,
      bus,
      logger,
      metrics,
    });
  }
  return createEngineCollection({
    openContainers: await (isCluster ? importApiPods(context) : importDockerContainers(context)),
    sandboxes: createClient(SandboxService, context.transport("sandbox")),
    client,
    openShards: () => openShards(context),
    bus,
    logger,
    metrics,
  });
}

// Imported when they are used, so that whoever only reads the settings doesn't load a client of an engine or a cluster.

async function importDockerContainers({ logger, metrics, settings }: Context): Promise<OpenContainers> {
  const { openDockerContainerSource } = await import("./docker/container-source.docker.ts");
  return (installationId) => openDockerContainerSource({ address: settings.runtime, installationId, logger, metrics });
}

async function importApiPods({ logger, metrics, settings }: Context): Promise<OpenContainers> {
  const { openApiPods } = await import("./kubernetes/api-pods.ts");
  const { namespace, namespaces: count, runtime: address } = settings;
  const namespaces = count === 1 ? [namespace] : Array.from({ length: count }, (_, index) => `${namespace}-${index}`);
  logger.warn(
    "logs and figures of sandboxes are read through the API server: all lines are told as stdout, and what a node rotates away unread is lost; collectors on the nodes do neither (deploy/README.md)",
  );
  return (installationId) => openApiPods({ address, namespaces, installationId, logger, metrics });
}
