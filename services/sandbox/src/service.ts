import { stateOf } from "@sandgate/kit/base/dependencies";
import { openDiskSpace } from "@sandgate/kit/base/disk-space";
import { type DomainError, messageOf } from "@sandgate/kit/base/domain-error";
import { startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { minuteMs } from "@sandgate/kit/base/time";
import { defineService, type ServiceContext, type ServiceParts } from "@sandgate/kit/process/service";
import { openShards } from "@sandgate/kit/process/shards";
import { asService } from "@sandgate/kit/rpc/context";
import { createClient } from "@sandgate/kit/rpc/create-client";
import { ImageRegistryService } from "@sandgate/proto/imageregistry/v1/image_registry";
import { FileService } from "@sandgate/proto/sandbox/v1/files";
import { PortService } from "@sandgate/proto/sandbox/v1/ports";
import { PreviewService } from "@sandgate/proto/sandbox/v1/previews";
import { ProcessService } from "@sandgate/proto/sandbox/v1/processes";
import { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import { TelemetryService } from "@sandgate/proto/telemetry/v1/telemetry";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { consumeEvents } from "./consumers.ts";
import { openEnv } from "./domain/env.ts";
import type { Quotas } from "./domain/quota.ts";
import { workspacePurged } from "./events.ts";
import { createFileHandlers } from "./handlers/files.ts";
import { createPortHandlers } from "./handlers/ports.ts";
import { createPreviewHandlers } from "./handlers/previews.ts";
import { createProcessHandlers } from "./handlers/processes.ts";
import { createSandboxHandlers } from "./handlers/sandboxes.ts";
import { createTicketHandlers } from "./handlers/tickets.ts";
import { openPulls } from "./open-pulls.ts";
import { openRuntime } from "./open-runtime.ts";
import { createHelperConnections } from "./operations/helper-connections.ts";
import { createKnownProcesses } from "./operations/known-processes.ts";
import { findLastRun } from "./operations/last-run.ts";
import { openOperationMetrics } from "./operations/metrics.ts";
import { createSandboxHelpers } from "./operations/sandbox-helpers.ts";
import { openReconcilerMetrics } from "./reconcile/metrics.ts";
import { createReconciler } from "./reconcile/reconciler.ts";
import { parseSandboxSettings, type SandboxSettings, sandboxSettings } from "./settings.ts";
import { stores } from "./store/adapters.ts";
import type { SandboxStore } from "./store/store.ts";
import { createChanges } from "./usecases/changes.ts";
import { purgeWorkspace, startRetention } from "./usecases/purge-workspace.ts";
import { createSandboxUses } from "./usecases/sandbox-use.ts";
import { createUseRecorder } from "./usecases/use-recorder.ts";

export { sandboxSettings };

/** As many as ext4 has for each MB of its size. */
const inodesPerMb = 64;

/** How long an ended container's logs may take to be read before it is removed all the same. */
const drainSeconds = 30;

/** A cluster's API server takes more starts at once than an engine, and answers before anything has started. */
const clusterStarts = { perKey: 48, total: 64 };

/** The service that runs sandboxes. */
export const sandboxService = defineService({
  name: "sandbox",
  settings: sandboxSettings,
  parseSettings: parseSandboxSettings,
  stores,
  open: openSandboxService,
});

async function openSandboxService(context: ServiceContext<SandboxSettings, SandboxStore>): Promise<ServiceParts> {
  const { bus, keyring, logger, metrics, settings, store } = context;
  const installationId = await store.installation.findId();
  const images = createClient(ImageRegistryService, context.transport("image-registry"));
  const telemetry = createClient(TelemetryService, context.transport("telemetry"));
  const workspaces = createClient(WorkspaceService, context.transport("workspace"));
  const changes = createChanges(bus);
  const shards = openShards(context);
  const draining = new AbortController();

  const diskSpace = openDiskSpace({
    folders: [settings.data],
    reserveMb: settings.diskReserveMb,
    reserveInodes: settings.diskReserveInodes,
    unavailablePercent: settings.pullReservePercent,
    metrics,
  });
  const runtime = await openRuntime(settings, installationId, logger, metrics);
  const uses = createSandboxUses({ record: store.activity.recordUses, logger });
  const recorder = createUseRecorder({ stage: store.activity.stageUses, logger, metrics });
  const operationMetrics = openOperationMetrics(metrics);
  const connections = createHelperConnections({ operations: runtime.operations, metrics: operationMetrics });
  const helpers = createSandboxHelpers({
    sandboxes: store.sandboxes,
    changes,
    connections,
    use: uses,
    recorder,
    draining: draining.signal,
    metrics: operationMetrics,
  });
  const { destination, pullImage, findAccess, requireFolder } = openPulls(context, runtime.images, images, diskSpace);

  const reconciler = createReconciler({
    store,
    runtime: runtime.lifecycle,
    images: runtime.images,
    runtimeDisk: runtime.disk,
    changes,
    shards,
    pullImage,
    findAccess,
    async findEnv(sandbox) {
      const sealed = await store.sandboxes.findSealedEnv(sandbox.id);
      if (!sealed) throw new Error("The sandbox's environment variables are not in the store.");
      return openEnv(keyring, sandbox, sealed);
    },
    async awaitDrained(sandboxId, signal) {
      const { drained } = await telemetry.awaitDrained(
        { sandboxId, timeoutSeconds: drainSeconds },
        asService({ signal, timeoutMs: (drainSeconds + 5) * 1000 }),
      );
      return drained;
    },
    recordUses: uses.flush,
    findLastRun: (sandboxId) => findLastRun(connections, sandboxId),
    limits: limitsOf(settings, destination !== undefined),
    diskLimits: { mb: settings.diskMb, inodes: settings.inodes || settings.diskMb * inodesPerMb },
    findFree: diskSpace.measureFree,
    confirmOrphanRemoval: settings.confirmOrphanRemoval,
    logger,
    metrics: openReconcilerMetrics(metrics, store.unfinished),
  });

  const known = createKnownProcesses();
  const previews = { store, keyring, now: () => new Date() };
  return {
    routes(router) {
      router.service(
        FileService,
        createFileHandlers({ helpers, limits: { fileMb: settings.fileMaxMb, archiveMb: settings.archiveMaxMb } }),
      );
      router.service(PortService, createPortHandlers({ ...previews, helpers }));
      router.service(ProcessService, {
        ...createProcessHandlers({ helpers, connections, known }),
        ...createTicketHandlers({ helpers, known, sandboxes: store.sandboxes, keyring }),
      });
      router.service(PreviewService, createPreviewHandlers({ ...previews, use: uses }));
      router.service(
        SandboxService,
        createSandboxHandlers({
          store,
          changes,
          images,
          workspaces,
          keyring,
          quotas: quotasOf(settings),
          installationId,
          limits: { cpus: settings.cpus, diskMb: settings.diskMb },
          runtimeProblem: reconciler.runtimeProblem,
          diskShortage: diskSpace.shortage,
          draining: draining.signal,
        }),
      );
    },
    async start() {
      await destination?.endpoint.listen().catch((error: unknown) => {
        logger.error({ err: error, port: settings.pullPort }, "the engine can't pull images until this port is free");
      });
      await requireFolder().catch((error: unknown) => {
        logger.error(
          { err: error },
          "no image can be pulled until this process can write to its folder (SANDGATE_DATA)",
        );
      });
      await reconciler.start();
      // Imported here, as the runtime is.
      const { startKernelWarnings } = await import("./runtime/docker/shared-kernel.ts");
      const { runtime: url, ociRuntime, registration } = settings;
      return [
        ...(destination
          ? [
              destination.cache.start(),
              startKernelWarnings({ url, ociRuntime, isOpen: registration === "open", logger }),
            ]
          : []),
        startPeriodicTask({
          what: "find the engine's disk",
          everyMs: minuteMs,
          logger,
          async work() {
            const found = await runtime.disk?.findFolder();
            if (found !== undefined) diskSpace.add(found);
          },
        }),
        await consumeEvents({ bus, store }),
        uses.start(),
        recorder.start(),
        {
          async stop() {
            connections.close();
            await reconciler.stop();
            await destination?.endpoint.close();
            await runtime.close();
          },
        },
        startRetention({ retention: store.retention, retentionDays: settings.retentionDays, logger }),
      ];
    },
    purge: {
      store: store.purges,
      purge: (workspaceId, signal) => purgeWorkspace({ store, changes, workspaceId, signal }),
      workspacePurged,
    },
    async dependencies() {
      return {
        database: await stateOf(store.purges.listOpenPurges()),
        runtime: stateOfRuntime(reconciler.runtimeProblem()),
        containers: reconciler.orphanProblem() ?? "ok",
        ...(destination && { pulls: await stateOf(destination.endpoint.listen()) }),
        disk: (await diskSpace.shortage().catch(messageOf)) ?? (await stateOf(requireFolder())),
      };
    },
    endWaits: () => draining.abort(),
    flush: async () => void (await Promise.all([uses.flush(), recorder.flush()])),
  };
}

/** What the operator reads in `/readyz` and at the start, so with what to do. */
function stateOfRuntime(problem: DomainError | undefined): "ok" | string {
  if (!problem) return "ok";
  const { message, hint } = problem;
  if (hint === undefined) return message;
  return `${message.replace(/\.$/, "")}. ${hint}`;
}

function limitsOf(settings: SandboxSettings, pulls: boolean) {
  return {
    cpus: settings.cpus,
    pids: settings.pids,
    pullTimeoutMs: settings.pullTimeoutSeconds * 1000,
    readinessTimeoutMs: settings.readinessTimeoutSeconds * 1000,
    schedulingTimeoutMs: pulls ? 0 : settings.schedulingTimeoutSeconds * 1000,
    drainTimeoutMs: drainSeconds * 1000,
    ...(!pulls && { starts: clusterStarts }),
  };
}

function quotasOf(settings: SandboxSettings): Quotas {
  return {
    workspace: { maxSandboxes: settings.maxSandboxes, maxMemoryMb: settings.maxMemoryMb },
    user: { maxSandboxes: settings.maxSandboxesOfUser, maxMemoryMb: settings.maxMemoryMbOfUser },
    installation: { maxSandboxes: settings.maxSandboxesInAll, maxMemoryMb: settings.maxMemoryMbInAll },
    maxRecordBytes: settings.recordsMb * mebibyte,
    maxFailuresPerHour: settings.failuresPerHour,
  };
}
