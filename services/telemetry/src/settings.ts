import { runtimeSetting } from "@sandgate/docker-engine/address";
import { diskReserveSetting } from "@sandgate/kit/base/disk-space";
import { defineSettings, integer, type SettingValues } from "@sandgate/kit/base/settings";

export type TelemetrySettings = SettingValues<typeof telemetrySettings>;

export const telemetrySettings = defineSettings({
  runtime: runtimeSetting,
  logQuotaMb: integer("SANDGATE_LOG_QUOTA_MB", {
    default: 1_024,
    min: 0,
    doc: "MiB of log lines kept for each sandbox, the oldest going first; 0 for no limit",
  }),
  workspaceLogQuotaMb: integer("SANDGATE_WORKSPACE_LOG_QUOTA_MB", {
    default: 10_240,
    min: 0,
    doc: "MiB of log lines kept for each workspace, those of ended sandboxes and then the oldest going first; 0 for no limit",
  }),
  logTotalMb: integer("SANDGATE_LOG_TOTAL_MB", {
    default: 102_400,
    min: 0,
    doc: "MiB of log lines kept for all workspaces together, those of the workspace that has most going first; 0 for no limit",
  }),
  diskReserveMb: diskReserveSetting,
  retentionDays: integer("SANDGATE_TELEMETRY_RETENTION_DAYS", {
    default: 7,
    min: 1,
    max: 3_650,
    doc: "How long logs and samples are kept, also those of ended sandboxes",
  }),
  auditRetentionDays: integer("SANDGATE_AUDIT_RETENTION_DAYS", {
    default: 365,
    min: 1,
    max: 36_500,
    doc: "How long the audit log's entries are kept, also those of deleted workspaces",
  }),
});
