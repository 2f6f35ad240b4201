import { Type } from "typebox";
import { Id, Moment, WorkspaceHeaders } from "../../pipeline/schema-parts.ts";

export const ResumingHeaders = Type.Object({
  ...WorkspaceHeaders.properties,
  "last-event-id": Type.Optional(
    Type.String({ maxLength: 256, description: "The id of the last event received; the stream goes on after it." }),
  ),
});

const stream = Type.Optional(
  Type.Unsafe<"stdout" | "stderr">({ type: "string", enum: ["stdout", "stderr"], description: "Filters log lines." }),
);
const include = Type.String({
  default: "logs,metrics",
  pattern: "^\\s*(?:logs|metrics)\\s*(?:,\\s*(?:logs|metrics)\\s*)*$",
  "x-issue": "must be a comma list of logs and metrics",
  description: "A comma list of `logs` and `metrics`.",
});
export const MonitoringQuery = Type.Object({
  since: Type.Optional(
    Type.String({ format: "date-time", description: "Inclusive; one hour before now when left out." }),
  ),
  until: Type.Optional(Type.String({ format: "date-time", description: "Exclusive; now when left out." })),
  limit: Type.Integer({
    minimum: 1,
    maximum: 10_000,
    default: 500,
    description: "Rows of logs and of metrics each; the newest ones of the window.",
  }),
  stream,
  include,
});
export const StreamQuery = Type.Object({ stream, include });
export const LogEntry = Type.Object({ timestamp: Moment, stream: Type.String(), log: Type.String() });
export const MetricPoint = Type.Object({
  timestamp: Moment,
  cpu_usage: Type.Number({ description: "Cumulative CPU time in seconds." }),
  memory_usage: Type.Number({ description: "The working set in bytes." }),
});
export const Monitoring = Type.Object({
  sandbox_id: Id,
  sandbox_name: Type.String(),
  logs: Type.Array(LogEntry),
  metrics: Type.Array(MetricPoint),
});
