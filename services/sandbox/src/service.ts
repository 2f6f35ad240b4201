import { type ConnectRouter, createClient, type HandlerContext } from "@connectrpc/connect";
import { stateOf } from "@sandgate/kit/base/dependencies";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import type { Logger } from "@sandgate/kit/base/logging";
import { counter, gauge, histogram } from "@sandgate/kit/base/metrics";
import { decodeCursor, pageLimit, toPage } from "@sandgate/kit/base/page";
import { startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { SettingsError, type SettingValues } from "@sandgate/kit/base/settings";
import { defineService, type ServiceContext, type ServiceParts } from "@sandgate/kit/process/service";
import { openShards } from "@sandgate/kit/process/shards";
import { asService, callOf, onBehalfOf, userOf, waitTimeOf, workspaceOf } from "@sandgate/kit/rpc/context";
import { runIdempotent } from "@sandgate/kit/rpc/idempotency";
import { ImageRegistryService, type ResolvedImage } from "@sandgate/proto/imageregistry/v1/image_registry";
import {
  type ListSandboxesRequest,
  type ProvisionSandboxRequest,
  type ProvisionSandboxResponse,
  SandboxService,
  type WaitSandboxesRequest,
} from "@sandgate/proto/sandbox/v1/sandbox";
import { TelemetryService } from "@sandgate/proto/telemetry/v1/telemetry";
import { checkName, makeUpName } from "./domain/names.ts";
import { acceptSandbox, beginStop, type ImageSnapshot, isLive, type Sandbox } from "./domain/sandbox.ts";
import { stageProvisioned, stagePurged } from "./events.ts";
import { toMessage, toStates } from "./messages.ts";
import { createChanges } from "./reconcile/changes.ts";
import { createReconciler } from "./reconcile/reconciler.ts";
import type { Runtime } from "./reconcile/runtime.ts";
import { waitUntilSettled } from "./reconcile/waits.ts";
import { sandboxSettings } from "./settings.ts";
import type { SandboxStore } from "./store/store.ts";

export { sandboxSettings } from "./settings.ts";

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
/** How long an ended container's logs may take to be read before it is removed all the same. */
const drainSeconds = 30;
const slice = 100;

/** The service that runs sandboxes. */
export const sandboxService = defineService({
  name: "sandbox",
  settings: sandboxSettings,
  stores: { sqlite: () => import("./store/store.sqlite.ts"), mongodb: () => import("./store/store.mongo.ts") },
  open: openSandboxService,
});

async function openSandboxService(
  context: ServiceContext<SettingValues<typeof sandboxSettings>, SandboxStore>,
): Promise<ServiceParts> {
  const { bus, keyring, logger, metrics, settings, store } = context;
  const installationId = await store.installationId();
  const images = createClient(ImageRegistryService, context.transport("image-registry"));
  const telemetry = createClient(TelemetryService, context.transport("telemetry"));
  const changes = createChanges(bus);
  const quota = { maxSandboxes: settings.maxSandboxes, maxMemoryMb: settings.maxMemoryMb };
  const draining = new AbortController();
  const shards = openShards(context);

  gauge(metrics, {
    name: "sandgate_sandboxes",
    help: "Sandboxes that are not ended and cleaned, by state",
    labelNames: ["state"],
    async collect() {
      this.reset();
      for (const [state, count] of Object.entries(await store.countByState())) {
        this.set({ state }, count);
      }
    },
  });

  const reconciler = createReconciler({
    store,
    runtime: await openRuntime(settings, installationId, logger),
    changes,
    shards,
    async authorizePull(sandbox, signal) {
      return images.authorizePull(
        {
          workspaceId: sandbox.workspaceId,
          registryId: sandbox.image.registryId,
          reference: sandbox.image.reference,
        },
        asService({ signal, timeoutMs: 30_000 }),
      );
    },
    async awaitDrained(sandboxId, signal) {
      const { drained } = await telemetry.awaitDrained(
        { sandboxId, timeoutSeconds: drainSeconds },
        asService({ signal, timeoutMs: (drainSeconds + 5) * 1000 }),
      );
      return drained;
    },
    limits: {
      cpus: settings.cpus,
      pids: settings.pids,
      pullTimeoutMs: settings.pullTimeoutSeconds * 1000,
      readinessTimeoutMs: settings.readinessTimeoutSeconds * 1000,
    },
    confirmOrphanRemoval: settings.confirmOrphanRemoval,
    logger,
    metrics: {
      readySeconds: histogram(metrics, {
        name: "sandgate_sandbox_ready_seconds",
        help: "Time from the acceptance of a sandbox until it was ready",
        buckets: [0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600],
      }),
      logsLost: counter(metrics, {
        name: "sandgate_sandbox_logs_lost_total",
        help: "Containers removed before their logs were read to the end",
      }),
    },
  });

  async function findSandbox(context: HandlerContext, idOrName: string): Promise<Sandbox> {
    const sandbox = await store.find(workspaceOf(callOf(context)), idOrName);
    if (!sandbox) {
      throw new DomainError("SANDBOX_NOT_FOUND", "There is no such sandbox.");
    }
    return sandbox;
  }

  async function provisionSandbox(
    request: ProvisionSandboxRequest,
    context: HandlerContext,
  ): Promise<ProvisionSandboxResponse> {
    const call = callOf(context);
    checkName(request.name);
    let sandboxId = "";
    const response = await runIdempotent({
      call,
      method: SandboxService.method.provisionSandbox,
      request,
      keyring,
      store,
      async work(recordFor) {
        const trouble = reconciler.runtimeProblem();
        if (trouble?.reason === "ISOLATION_UNAVAILABLE") {
          throw new DomainError("PROVISIONING_FAILED", "Sandboxes can't be isolated on this host.", {
            hint: trouble.message,
          });
        }
        const { image } = await images.resolveImage({ imageId: request.imageId }, onBehalfOf(call));
        if (!image) {
          throw new DomainError("IMAGE_NOT_FOUND", "There is no such image.");
        }
        const sandbox = acceptSandbox({
          id: newId(),
          name: request.name || makeUpName(),
          workspaceId: workspaceOf(call),
          image: toSnapshot(image),
          labels: request.labels,
          createdBy: userOf(call).id,
          now: new Date(),
        });
        const answer: ProvisionSandboxResponse = {
          $typeName: "sandgate.sandbox.v1.ProvisionSandboxResponse",
          sandbox: toMessage(sandbox),
        };
        await store.create(sandbox, quota, [stageProvisioned(sandbox, call)], await recordFor(answer));
        sandboxId = sandbox.id;
        return answer;
      },
    });
    if (sandboxId) {
      // Whichever replica has its shard goes to work.
      changes.announce(sandboxId);
    }
    return response;
  }

  async function listSandboxes(request: ListSandboxesRequest, context: HandlerContext) {
    const limit = pageLimit(request.page?.limit);
    const cursor = decodeCursor(request.page?.cursor ?? "");
    const rows = await store.list(
      workspaceOf(callOf(context)),
      { states: toStates(request.states), labels: request.labels },
      { limit: limit + 1, ...(cursor && { after: { createdAt: new Date(cursor.createdAt), id: cursor.id } }) },
    );
    const page = toPage(rows, limit, (row) => ({ createdAt: row.createdAt.getTime(), id: row.id }));
    return { sandboxes: page.rows.map(toMessage), nextCursor: page.nextCursor };
  }

  async function waitSandboxes(request: WaitSandboxesRequest, context: HandlerContext) {
    const found = await Promise.all(request.idsOrNames.map((idOrName) => findSandbox(context, idOrName)));
    const settled = await waitUntilSettled({
      store,
      changes,
      ids: found.map((sandbox) => sandbox.id),
      timeoutMs: waitTimeOf(context, request.timeoutSeconds),
      signal: AbortSignal.any([context.signal, draining.signal]),
    });
    return {
      sandboxes: settled.map((sandbox) => {
        if (!sandbox) {
          throw new DomainError("SANDBOX_NOT_FOUND", "There is no such sandbox any more.");
        }
        return toMessage(sandbox);
      }),
    };
  }

  async function stopSandbox(context: HandlerContext, idOrName: string): Promise<Sandbox> {
    for (;;) {
      const sandbox = await findSandbox(context, idOrName);
      if (!isLive(sandbox.state)) {
        return sandbox;
      }
      const stopping = beginStop(sandbox, "stopped_by_user", new Date());
      if (await store.update(stopping, [])) {
        changes.announce(sandbox.id);
        return stopping;
      }
    }
  }

  /** A slice of a deleted workspace's sandboxes; true once all are gone from the engine and from the store. */
  async function purgeWorkspace(workspaceId: string, signal: AbortSignal): Promise<boolean> {
    const uncleaned = await store.listUncleaned(workspaceId, slice);
    for (const sandbox of uncleaned) {
      if (isLive(sandbox.state) && (await store.update(beginStop(sandbox, "workspace_deleted", new Date()), []))) {
        changes.announce(sandbox.id);
      }
    }
    if (uncleaned.length > 0) {
      return false;
    }
    while ((await store.deleteCleaned(workspaceId, slice)) === slice) {
      if (signal.aborted) {
        return false;
      }
    }
    return true;
  }

  return {
    routes(router: ConnectRouter) {
      router.service(SandboxService, {
        provisionSandbox,
        listSandboxes,
        waitSandboxes,
        async getSandbox(request, context) {
          return { sandbox: toMessage(await findSandbox(context, request.idOrName)) };
        },
        async stopSandbox(request, context) {
          return { sandbox: toMessage(await stopSandbox(context, request.idOrName)) };
        },
        async getInstallation() {
          return { installationId };
        },
      });
    },
    async start() {
      await reconciler.start();
      return [
        {
          async stop() {
            await reconciler.stop();
            await shards.stop();
          },
        },
        startPeriodicTask({
          what: "delete old sandbox records",
          everyMs: hourMs,
          logger,
          async work(signal) {
            const before = new Date(Date.now() - settings.retentionDays * dayMs);
            while (!signal.aborted && (await store.deleteEndedBefore(before, slice)) === slice);
          },
        }),
      ];
    },
    purge: { store, purge: purgeWorkspace, stagePurged },
    async dependencies() {
      return { database: await stateOf(store.listOpenPurges()), runtime: reconciler.runtimeProblem()?.message ?? "ok" };
    },
    endWaits: () => draining.abort(),
  };
}

function toSnapshot(image: ResolvedImage): ImageSnapshot {
  const { imageId, reference, registryId, isDefault, memoryMb, readinessPort, ttlSeconds } = image;
  return {
    imageId,
    reference,
    registryId,
    isDefault,
    memoryMb,
    ...(readinessPort === undefined ? {} : { readinessPort }),
    ...(ttlSeconds === undefined ? {} : { ttlSeconds }),
  };
}

/** The adapter that the setting's scheme names, imported only when it is chosen. */
async function openRuntime(
  settings: SettingValues<typeof sandboxSettings>,
  installationId: string,
  logger: Logger,
): Promise<Runtime> {
  if (!settings.runtime.startsWith("docker:")) {
    throw new SettingsError([`SANDGATE_RUNTIME must be docker:// and an address, not "${settings.runtime}"`]);
  }
  const { createDockerRuntime } = await import("./docker/runtime.docker.ts");
  return createDockerRuntime({
    url: settings.runtime,
    installationId,
    isolation: settings.isolation === "on",
    runtimeName: settings.ociRuntime,
    nameservers: settings.nameservers,
    diskMb: settings.diskMb,
    logger,
  });
}
