import { create } from "@bufbuild/protobuf";
import { type ConnectRouter, createClient, type HandlerContext } from "@connectrpc/connect";
import { untilAborted } from "@sandgate/kit/base/abort";
import { stateOf } from "@sandgate/kit/base/dependencies";
import { DomainError, invalid, messageOf } from "@sandgate/kit/base/domain-error";
import { counter } from "@sandgate/kit/base/metrics";
import { type PeriodicTask, startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import type { SettingValues } from "@sandgate/kit/base/settings";
import { defineService, type ServiceContext, type ServiceParts } from "@sandgate/kit/process/service";
import { openShards } from "@sandgate/kit/process/shards";
import { asService, callOf, waitTimeOf, workspaceOf } from "@sandgate/kit/rpc/context";
import { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import {
  type AwaitDrainedRequest,
  type IngestTelemetryRequest,
  type QueryTelemetryRequest,
  type TailTelemetryRequest,
  TailTelemetryResponseSchema,
  TelemetryService,
} from "@sandgate/proto/telemetry/v1/telemetry";
import { type Collector, startCollector } from "./collect/collector.ts";
import type { ContainerSource } from "./collect/container-source.ts";
import { awaitDrained, lookTopic } from "./collect/log-drain.ts";
import { stagePurged } from "./events.ts";
import { toBatch, toLogEntry, toMetricPoint, toStreamName } from "./messages.ts";
import { queryLogs, queryMetrics } from "./query/queries.ts";
import { topicOf } from "./query/stored-watch.ts";
import { tailRows } from "./query/tails.ts";
import { telemetrySettings } from "./settings.ts";
import { fromMillis, fromTimestamp } from "./store/rows.ts";
import type { TelemetryStore } from "./store/store.ts";

export { telemetrySettings } from "./settings.ts";

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const defaultLimit = 500;
/** A lost start is tried again; the sandbox service may not answer yet. */
const startRetryMs = 2_000;
const bytesPerMb = 1024 * 1024;

/** What there is once the installation's id is known. */
interface Collecting {
  source: ContainerSource;
  collector: Collector;
  stop(): Promise<void>;
}

/** The service that collects, keeps and tells what sandboxes log and use. */
export const telemetryService = defineService({
  name: "telemetry",
  settings: telemetrySettings,
  stores: { sqlite: () => import("./store/store.sqlite.ts"), mongodb: () => import("./store/store.mongo.ts") },
  open: openTelemetryService,
});

async function openTelemetryService(
  context: ServiceContext<SettingValues<typeof telemetrySettings>, TelemetryStore>,
): Promise<ServiceParts> {
  const { bus, logger, metrics, settings, store } = context;
  const { openDockerContainerSource } = await import("./docker/container-source.docker.ts");
  const sandboxes = createClient(SandboxService, context.transport("sandbox"));
  const ingest = createClient(TelemetryService, context.transport("telemetry"));
  const draining = new AbortController();
  let collecting: Collecting | undefined;
  const begun = Promise.withResolvers<Collecting>();
  /** Why nothing is collected yet, once that is known. */
  let trouble = "ok";

  const stored = counter(metrics, {
    name: "sandgate_telemetry_stored_batches_total",
    help: "Batches of logs and samples, by what became of them",
    labelNames: ["outcome"],
  });

  async function ingestTelemetry(request: IngestTelemetryRequest) {
    const batch = await toBatch(request);
    const answer = await store.appendBatch(batch, {
      logQuotaBytes: settings.logQuotaMb * bytesPerMb,
      now: new Date(),
    });
    stored.inc({ outcome: answer.accepted ? "accepted" : "refused" });
    if (answer.accepted) bus.signal(topicOf(batch.source.sandboxId));
    return answer;
  }

  async function queryTelemetry(request: QueryTelemetryRequest, context: HandlerContext) {
    const { sandboxId } = request;
    const { signal } = context;
    const nowNs = fromMillis(Date.now());
    const window = {
      sinceNs: request.since ? fromTimestamp(request.since) : nowNs - fromMillis(hourMs),
      // Now is to the millisecond; what has come in until now is wanted.
      untilNs: request.until ? fromTimestamp(request.until) : nowNs + fromMillis(1),
    };
    if (window.sinceNs >= window.untilNs) throw invalid("query.since", "must be before until");
    await requireOwn(sandboxId, context);
    const limit = request.limit || defaultLimit;
    const stream = toStreamName(request.stream);
    const [logs, points] = await Promise.all([
      request.includeLogs ? queryLogs(store, { sandboxId, window, limit, stream, signal }) : [],
      request.includeMetrics ? queryMetrics(store, { sandboxId, window, limit, signal }) : [],
    ]);
    return { logs: logs.map(toLogEntry), metrics: points.map(toMetricPoint) };
  }

  async function* tailTelemetry(request: TailTelemetryRequest, context: HandlerContext) {
    const rows = tailRows({
      store,
      bus,
      sandboxId: request.sandboxId,
      workspaceId: workspaceOf(callOf(context)),
      position: request.position,
      stream: toStreamName(request.stream),
      include: { logs: request.includeLogs, metrics: request.includeMetrics },
      signal: AbortSignal.any([context.signal, draining.signal]),
    });
    for await (const { position, ...row } of rows) {
      yield create(TailTelemetryResponseSchema, {
        position,
        row:
          "log" in row
            ? { case: "log", value: toLogEntry(row.log) }
            : { case: "metric", value: toMetricPoint(row.metric) },
      });
    }
  }

  async function answerDrained(request: AwaitDrainedRequest, context: HandlerContext) {
    const time = AbortSignal.timeout(waitTimeOf(context, request.timeoutSeconds));
    const over = AbortSignal.any([time, context.signal, draining.signal]);
    let drained = false;
    try {
      const running = await untilAborted(begun.promise, over, () => {
        throw new Error("Container logs are not being collected yet.");
      });
      drained = await awaitDrained({ source: running.source, store, bus, sandboxId: request.sandboxId, signal: over });
    } catch (cause) {
      if (draining.signal.aborted) throw draining.signal.reason;
      throw new DomainError("UPSTREAM_ERROR", "Whether the logs are stored can't be told.", { cause });
    }
    // Not "no", so that another replica is asked.
    if (!drained) draining.signal.throwIfAborted();
    return { drained };
  }

  /** The sandbox service has been asked by the facade; this holds whatever it answered. A sandbox without rows is nobody's. */
  async function requireOwn(sandboxId: string, context: HandlerContext): Promise<void> {
    const workspaceId = workspaceOf(callOf(context));
    const sandbox = await store.findSandbox(sandboxId);
    if (sandbox && sandbox.workspaceId !== workspaceId) {
      throw new DomainError("SANDBOX_NOT_FOUND", "There is no such sandbox.");
    }
  }

  /** Runs once the sandbox service tells the installation's id. */
  function startCollecting(): PeriodicTask {
    return startPeriodicTask({
      what: "start collecting telemetry",
      everyMs: startRetryMs,
      logger,
      async work(signal) {
        if (collecting) return;
        const { installationId } = await sandboxes
          .getInstallation({}, asService({ signal }))
          .catch((error: unknown) => {
            trouble = `the sandbox service can't be asked: ${messageOf(error)}`;
            throw error;
          });
        const source = openDockerContainerSource({ address: settings.runtime, installationId, logger });
        const shards = openShards(context);
        const collector = startCollector({ source, client: ingest, shards, logger, metrics });
        const unwatch = bus.watch(lookTopic, (sandboxId) => collector.look(sandboxId));
        collecting = {
          source,
          collector,
          async stop() {
            unwatch();
            await collector.stop();
            // Only then may another replica begin.
            await shards.stop();
          },
        };
        begun.resolve(collecting);
      },
    });
  }

  return {
    routes(router: ConnectRouter) {
      router.service(TelemetryService, { ingestTelemetry, queryTelemetry, tailTelemetry, awaitDrained: answerDrained });
    },
    async start() {
      const sweep = startPeriodicTask({
        what: "sweep expired logs and samples",
        everyMs: hourMs,
        logger,
        async work(signal) {
          const before = new Date(Date.now() - settings.retentionDays * dayMs);
          while (!signal.aborted && (await store.sweepExpired(before)));
        },
      });
      const starting = startCollecting();
      return [
        sweep,
        {
          async stop() {
            await starting.stop();
            await collecting?.stop();
          },
        },
      ];
    },
    purge: {
      store,
      stagePurged,
      async purge(workspaceId, signal) {
        while (await store.purgeSlice(workspaceId)) if (signal.aborted) return false;
        return true;
      },
    },
    async dependencies() {
      return { database: await stateOf(store.listOpenPurges()), runtime: collecting?.collector.state() ?? trouble };
    },
    endWaits: () => draining.abort(new DomainError("DRAINING", "telemetry is shutting down.")),
  };
}
