import { QueryTelemetryRequestSchema, TailTelemetryRequestSchema } from "@sandgate/proto/telemetry/v1/telemetry";
import { Type } from "typebox";
import { component, Id, Moment, WorkspaceHeaders } from "../../pipeline/validation/common-schemas.ts";
import { fieldSchema } from "../../pipeline/validation/field-schema.ts";

export const ResumingHeaders = Type.Object({
  ...WorkspaceHeaders.properties,
  "last-event-id": Type.Optional(
    fieldSchema(TailTelemetryRequestSchema, "position", {
      description: "The id of the last event received. The stream continues after it.",
    }),
  ),
});

const Stream = Type.Unsafe<"stdout" | "stderr">({ type: "string", enum: ["stdout", "stderr"] });
const stream = Type.Optional(
  Type.Unsafe<"stdout" | "stderr">({ ...Stream, description: "Only log lines of this stream." }),
);
const include = Type.String({
  default: "logs,metrics",
  pattern: "^\\s*(?:logs|metrics)\\s*(?:,\\s*(?:logs|metrics)\\s*)*$",
  "x-issue": "must be a comma-separated list of logs and metrics",
  description: "A comma-separated list of `logs` and `metrics`.",
});
export const MonitoringQuery = Type.Object({
  since: Type.Optional(Type.String({ format: "date-time", description: "Inclusive. One hour ago by default." })),
  until: Type.Optional(Type.String({ format: "date-time", description: "Exclusive. Now by default." })),
  limit: fieldSchema(QueryTelemetryRequestSchema, "limit", {
    minimum: 1,
    default: 500,
    description:
      "The maximum number of log rows and of metric rows. The newest ones are returned; fewer when these come to more than 31 MiB.",
  }),
  stream,
  include,
});
export const StreamQuery = Type.Object({ stream, include });
export const LogEntry = component("LogEntry", { timestamp: Moment, stream: Stream, log: Type.String() });
export const MetricPoint = component("MetricPoint", {
  timestamp: Moment,
  cpu_usage: Type.Number({ description: "Cumulative CPU time in seconds." }),
  memory_usage: Type.Number({ description: "The working set in bytes." }),
});
export const Monitoring = component("Monitoring", {
  sandbox_id: Id,
  sandbox_name: Type.String(),
  logs: Type.Array(LogEntry),
  metrics: Type.Array(MetricPoint),
});
