import { type LogEntry, LogStream, type MetricPoint } from "@sandgate/proto/telemetry/v1/telemetry";
import type { Static } from "typebox";
import { present } from "../../pipeline/contract.ts";
import { toIsoMicros, toIsoMillis } from "../../pipeline/times.ts";
import type * as schemas from "./schemas.ts";

export function fromStreamName(name: "stdout" | "stderr" | undefined): LogStream {
  if (name === undefined) return LogStream.UNSPECIFIED;
  return name === "stderr" ? LogStream.STDERR : LogStream.STDOUT;
}

export function toLogEntry(entry: LogEntry): Static<typeof schemas.LogEntry> {
  return {
    timestamp: toIsoMicros(present(entry.timestamp)),
    stream: entry.stream === LogStream.STDERR ? "stderr" : "stdout",
    log: entry.log,
  };
}

export function toMetricPoint(point: MetricPoint): Static<typeof schemas.MetricPoint> {
  return {
    timestamp: toIsoMillis(present(point.timestamp)),
    cpu_usage: point.cpuUsage,
    memory_usage: point.memoryUsage,
  };
}
