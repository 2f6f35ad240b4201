import { defineSettings, integer, text } from "@sandgate/kit/base/settings";

export const telemetrySettings = defineSettings({
  runtime: text("SANDGATE_RUNTIME", {
    default: "docker:///var/run/docker.sock",
    doc: "The container engine that sandboxes run on: docker:// and the path of its socket, or docker://host:port",
  }),
  logQuotaMb: integer("SANDGATE_LOG_QUOTA_MB", {
    default: 1_024,
    min: 0,
    doc: "MiB of log lines kept for each sandbox, the oldest going first; 0 for no limit",
  }),
  retentionDays: integer("SANDGATE_TELEMETRY_RETENTION_DAYS", {
    default: 7,
    min: 1,
    max: 3_650,
    doc: "How long logs and samples are kept, also those of ended sandboxes",
  }),
});
