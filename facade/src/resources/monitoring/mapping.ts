import { LogEntrySchema, LogStream, MetricPointSchema } from "@sandgate/proto/telemetry/v1/telemetry";
import { present } from "../../pipeline/messages/contract.ts";
import { createMapper } from "../../pipeline/messages/mapper.ts";
import { toIsoMicros } from "../../pipeline/messages/times.ts";
import * as schemas from "./schemas.ts";

export function fromStreamName(name: "stdout" | "stderr" | undefined): LogStream {
  if (name === undefined) return LogStream.UNSPECIFIED;
  return name === "stderr" ? LogStream.STDERR : LogStream.STDOUT;
}

export const toLogEntry = createMapper(LogEntrySchema, schemas.LogEntry, {
  timestamp: ({ timestamp }) => toIsoMicros(present(timestamp)),
  stream: ({ stream }) => (stream === LogStream.STDERR ? "stderr" : "stdout"),
});

export const toMetricPoint = createMapper(MetricPointSchema, schemas.MetricPoint, {});
