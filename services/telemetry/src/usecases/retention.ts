import type { Logger } from "@sandgate/kit/base/logging";
import { counter, type Metrics } from "@sandgate/kit/base/metrics";
import { startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { dayMs, hourMs } from "@sandgate/kit/base/time";
import type { BackgroundTask } from "@sandgate/kit/process/service";
import type { TelemetryStore } from "../store/store.ts";

const trimMs = 1_000;
const auditBatchSize = 500;

/** Lines that were removed before they expired, by the limit: of a sandbox, a workspace or the installation. */
export function countRemovedLines(metrics: Metrics) {
  return counter(metrics, {
    name: "sandgate_telemetry_removed_lines_total",
    help: "Log lines removed in favour of newer ones, by the limit that was reached",
    labelNames: ["limit"],
  });
}

/** Removes what has expired, and what all workspaces together have too much of. */
export function startRetention(o: {
  store: Pick<TelemetryStore, "audit" | "retention">;
  retentionDays: number;
  auditRetentionDays: number;
  /** 0: no limit. */
  logTotalBytes: number;
  logger: Logger;
  metrics: Metrics;
}): BackgroundTask[] {
  const { store, logger, logTotalBytes } = o;
  const removedLines = countRemovedLines(o.metrics);
  return [
    startPeriodicTask({
      what: "sweep expired logs and samples",
      everyMs: hourMs,
      logger,
      async work(signal) {
        const before = new Date(Date.now() - o.retentionDays * dayMs);
        while (!signal.aborted && (await store.retention.sweepExpired(before)));
      },
    }),
    startPeriodicTask({
      what: "sweep expired entries of the audit log",
      everyMs: hourMs,
      logger,
      async work(signal) {
        const before = new Date(Date.now() - o.auditRetentionDays * dayMs);
        while (!signal.aborted && (await store.audit.sweep(before, auditBatchSize)) === auditBatchSize);
      },
    }),
    startPeriodicTask({
      what: "keep all logs within SANDGATE_LOG_TOTAL_MB",
      everyMs: trimMs,
      logger,
      async work(signal) {
        if (logTotalBytes === 0) return;
        for (let more = true; more && !signal.aborted; ) {
          const trimmed = await store.retention.trimTotal(logTotalBytes);
          removedLines.inc({ limit: "installation" }, trimmed.lines);
          more = trimmed.more;
        }
      },
    }),
  ];
}
