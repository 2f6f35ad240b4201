import type { ServiceImpl } from "@connectrpc/connect";
import { untilAborted } from "@sandgate/kit/base/abort";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { counter, type Metrics } from "@sandgate/kit/base/metrics";
import type { EventBus } from "@sandgate/kit/events/bus";
import { callerKey, callOf, waitTimeOf, workspaceOf } from "@sandgate/kit/rpc/context";
import type { TelemetryService } from "@sandgate/proto/telemetry/v1/telemetry";
import type { ContainerSource } from "./collect/container-source.ts";
import { awaitDrained, watchPollRequests } from "./collect/log-drain.ts";
import { toBatch, toLogEntry, toMetricPoint, toStreamName, toTailResponse, toWindow } from "./messages.ts";
import { findOwn } from "./query/ownership.ts";
import { queryPage } from "./query/pages.ts";
import { tailRows } from "./query/tails.ts";
import { countRemovedLines } from "./retention.ts";
import type { LogQuotas } from "./store/quotas.ts";
import type { TelemetryStore } from "./store/store.ts";
import { signalStored } from "./store/stored-signal.ts";

const defaultLimit = 500;

/** Answers the service's calls. */
export function createHandlers(o: {
  store: TelemetryStore;
  bus: EventBus;
  metrics: Metrics;
  quotas: LogQuotas;
  /** Why new rows can't be stored now, in one line; undefined: they can. */
  shortage(): Promise<string | undefined>;
  /** Resolves when the collector starts; undefined: only collectors on the nodes of a cluster see containers. */
  containers: Promise<ContainerSource | undefined>;
  /** False: nobody collects, here or elsewhere. */
  isCollected: boolean;
  /** Whose a sandbox is of which nothing is stored yet. Throws SANDBOX_NOT_FOUND. */
  findWorkspace(sandboxId: string, signal: AbortSignal): Promise<string>;
  /** Ends tails and waits, so that their callers ask another replica. */
  draining: AbortSignal;
}): ServiceImpl<typeof TelemetryService> {
  const { store, bus, draining, quotas } = o;
  const storedBatches = counter(o.metrics, {
    name: "sandgate_telemetry_stored_batches_total",
    help: "Batches of logs and samples, by what became of them",
    labelNames: ["outcome"],
  });
  const removedLines = countRemovedLines(o.metrics);

  async function workspaceOfSandbox(sandboxId: string, signal: AbortSignal): Promise<string> {
    const known = await store.findSandbox(sandboxId);
    return known?.workspaceId ?? o.findWorkspace(sandboxId, signal);
  }

  return {
    async ingestTelemetry(request, context) {
      const { source } = request;
      // A node's collector doesn't know whose a sandbox is, and isn't believed.
      if (source && (source.workspaceId === "" || context.values.get(callerKey)?.service === "collector")) {
        source.workspaceId = await workspaceOfSandbox(source.sandboxId, context.signal);
      }
      const batch = await toBatch(request);
      // A cursor alone takes no room, and lets containers go that have nothing to store.
      const shortage = batch.chunk && (await o.shortage());
      if (shortage !== undefined) {
        storedBatches.inc({ outcome: "no_room" });
        throw new DomainError("STORAGE_FULL", `No logs or samples are taken: ${shortage}.`);
      }
      const answer = await store.appendBatch(batch, { quotas, now: new Date() });
      storedBatches.inc({ outcome: answer.accepted ? "accepted" : "refused" });
      removedLines.inc({ limit: "sandbox" }, answer.removedLines.sandbox);
      removedLines.inc({ limit: "workspace" }, answer.removedLines.workspace);
      if (answer.accepted) signalStored(bus, batch.source.sandboxId);
      return { accepted: answer.accepted, storedCursor: answer.storedCursor };
    },

    async queryTelemetry(request, context) {
      const { sandboxId } = request;
      const window = toWindow(request, Date.now());
      // The facade has asked the sandbox service before; this service doesn't rely on it.
      await findOwn(store, { sandboxId, workspaceId: workspaceOf(callOf(context)) });
      const { logs, metrics, nextPageToken } = await queryPage(store, {
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
      for await (const sandboxId of watchPollRequests(bus, signal)) yield { sandboxId };
    },

    async awaitDrained({ sandboxId, timeoutSeconds }, context) {
      if (!o.isCollected) return { drained: false };
      const timeout = AbortSignal.timeout(waitTimeOf(context, timeoutSeconds));
      const signal = AbortSignal.any([timeout, context.signal, draining]);
      let drained = false;
      try {
        const containers = await untilAborted(o.containers, signal, () => {
          throw new Error("Container logs are not being collected yet.");
        });
        const findWorkspace = () => workspaceOfSandbox(sandboxId, signal);
        drained = await awaitDrained({ containers, store, bus, sandboxId, findWorkspace, signal });
      } catch (cause) {
        if (draining.aborted) throw draining.reason;
        throw new DomainError("UPSTREAM_ERROR", "It is unknown whether the logs are stored.", { cause });
      }
      // An error rather than false, so that another replica is asked.
      if (!drained) draining.throwIfAborted();
      return { drained };
    },
  };
}
