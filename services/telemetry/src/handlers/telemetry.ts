import type { ServiceImpl } from "@connectrpc/connect";
import { untilAborted } from "@sandgate/kit/base/abort";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { EventBus } from "@sandgate/kit/events/bus";
import { callOf, waitTimeOf, workspaceOf } from "@sandgate/kit/rpc/context";
import type { TelemetryService } from "@sandgate/proto/telemetry/v1/telemetry";
import type { ContainerSource } from "../collect/container-source.ts";
import { watchListingRequests } from "../events.ts";
import { toBatch, toLogEntry, toMetricPoint, toStreamName, toTailResponse, toWindow } from "../messages.ts";
import { createChunkSlots } from "../query/chunk-slots.ts";
import { findOwn } from "../query/ownership.ts";
import { queryPage } from "../query/pages.ts";
import { createSharedChunks, tailRows } from "../query/tails.ts";
import type { TelemetryStore } from "../store/store.ts";
import { awaitDrained } from "../usecases/await-drained.ts";
import type { Ingest } from "../usecases/ingest.ts";
import type { WorkspaceLookup } from "../usecases/ownership.ts";

const defaultLimit = 500;

/** Answers the calls about logs and samples. */
export function createTelemetryHandlers(o: {
  store: TelemetryStore;
  bus: EventBus;
  ingest: Ingest;
  /** Resolves when the collector starts; undefined: only collectors on the nodes of a cluster see containers. */
  containers: Promise<ContainerSource | undefined>;
  findWorkspace: WorkspaceLookup;
  /** Ends tails and waits, so that their callers ask another replica. */
  draining: AbortSignal;
}): ServiceImpl<typeof TelemetryService> {
  const { store, bus, draining } = o;
  const slots = createChunkSlots();
  const shared = createSharedChunks();

  return {
    async ingestTelemetry(request, context) {
      const sandboxId = request.source?.sandboxId ?? "";
      // Collectors don't know the workspace, and are not believed.
      const workspaceId = await o.findWorkspace(sandboxId, context.signal);
      const { accepted, storedCursor } = await o.ingest(await toBatch(request, workspaceId), context.signal);
      return { accepted, storedCursor };
    },

    async queryTelemetry(request, context) {
      const { sandboxId } = request;
      const window = toWindow(request, Date.now());
      // The facade has asked the sandbox service before; this service doesn't rely on it.
      await findOwn(store, { sandboxId, workspaceId: workspaceOf(callOf(context)) });
      const { logs, metrics, nextPageToken } = await queryPage(store.chunks, {
        sandboxId,
        window,
        limit: request.limit || defaultLimit,
        stream: toStreamName(request.stream),
        include: { logs: request.includeLogs, metrics: request.includeMetrics },
        pageBytes: request.pageBytes,
        pageToken: request.pageToken,
        signal: context.signal,
      });
      return { logs: logs.map(toLogEntry), metrics: metrics.map(toMetricPoint), nextPageToken };
    },

    async *tailTelemetry(request, context) {
      const rows = tailRows({
        store,
        bus,
        slots,
        shared,
        sandboxId: request.sandboxId,
        workspaceId: workspaceOf(callOf(context)),
        position: request.position,
        stream: toStreamName(request.stream),
        include: { logs: request.includeLogs, metrics: request.includeMetrics },
        signal: AbortSignal.any([context.signal, draining]),
      });
      for await (const row of rows) yield toTailResponse(row);
    },

    async *watchDrains(_request, context) {
      const signal = AbortSignal.any([context.signal, draining]);
      for await (const sandboxId of watchListingRequests(bus, signal)) yield { sandboxId };
    },

    async awaitDrained({ sandboxId, timeoutSeconds }, context) {
      const timeout = AbortSignal.timeout(waitTimeOf(context, timeoutSeconds));
      const signal = AbortSignal.any([timeout, context.signal, draining]);
      let drained = false;
      try {
        const containers = await untilAborted(o.containers, signal, () => {
          throw new Error("Container logs are not being collected yet.");
        });
        const findWorkspace = () => o.findWorkspace(sandboxId, signal);
        drained = await awaitDrained({ containers, sources: store.sources, bus, sandboxId, findWorkspace, signal });
      } catch (cause) {
        if (draining.aborted) throw draining.reason;
        throw new DomainError("UPSTREAM_ERROR", "It could not be determined whether the logs are stored.", { cause });
      }
      // An error rather than false, so that another replica is asked.
      if (!drained) draining.throwIfAborted();
      return { drained };
    },
  };
}
