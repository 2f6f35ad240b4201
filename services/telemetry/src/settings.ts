import { runtimeSetting } from "@sandgate/docker-engine/address";
import { diskReserveSetting } from "@sandgate/kit/base/disk-space";
import { choice, defineSettings, flag, integer, type SettingValues, text } from "@sandgate/kit/base/settings";

export type TelemetrySettings = SettingValues<typeof telemetrySettings>;

const kubeletUrl = {
  accepts: (url: string) => URL.parse(url)?.protocol === "https:",
  expects: "https://host:10250",
} as const;

/** Where a node has the logs and figures of its pods. */
const nodeSettings = defineSettings({
  namespace: text("SANDGATE_KUBERNETES_NAMESPACE", {
    default: "sandgate-sandboxes",
    accepts: (name) => /^[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?$/.test(name),
    expects: "a name of lower-case letters, digits and hyphens, 52 at most",
    doc: "On Kubernetes, the namespace of the sandboxes' pods",
  }),
  podLogs: text("SANDGATE_POD_LOGS", {
    default: "/var/log/pods",
    doc: "The folder of this node in which the kubelet keeps the logs of pods",
  }),
  kubeletTokenFile: text("SANDGATE_KUBELET_TOKEN_FILE", {
    default: "/var/run/secrets/kubernetes.io/serviceaccount/token",
    doc: "The token of a service account that may read nodes/metrics",
  }),
  kubeletCaFile: text("SANDGATE_KUBELET_CA_FILE", {
    default: "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
    doc: "The CA certificates that the kubelet's certificate is checked with",
  }),
  kubeletVerify: flag("SANDGATE_KUBELET_VERIFY", {
    default: true,
    doc: "Whether the kubelet's certificate is checked; many kubelets sign their own",
  }),
});

export type NodeSettings = SettingValues<typeof nodeSettings> & { kubeletUrl: string };

/** The settings of the process on each node of a cluster. */
export const collectorSettings = defineSettings({
  ...nodeSettings,
  kubeletUrl: text("SANDGATE_KUBELET_URL", { ...kubeletUrl, doc: "The kubelet of this node: https://host:10250" }),
});

export const telemetrySettings = defineSettings({
  runtime: runtimeSetting,
  logQuotaMb: integer("SANDGATE_LOG_QUOTA_MB", {
    default: 1_024,
    min: 0,
    doc: "MiB of log lines kept for each sandbox; above that the oldest are removed; 0 for no limit",
  }),
  workspaceLogQuotaMb: integer("SANDGATE_WORKSPACE_LOG_QUOTA_MB", {
    default: 10_240,
    min: 0,
    doc: "MiB of log lines kept for each workspace; above that lines of ended sandboxes are removed, then the oldest; 0 for no limit",
  }),
  logTotalMb: integer("SANDGATE_LOG_TOTAL_MB", {
    default: 102_400,
    min: 0,
    doc: "MiB of log lines kept for all workspaces; above that the workspace with most loses its oldest; 0 for no limit",
  }),
  diskReserveMb: diskReserveSetting,
  retentionDays: integer("SANDGATE_TELEMETRY_RETENTION_DAYS", {
    default: 7,
    min: 1,
    max: 3_650,
    doc: "How long logs and samples are kept, those of ended sandboxes too; a line may stay a day longer",
  }),
  auditRetentionDays: integer("SANDGATE_AUDIT_RETENTION_DAYS", {
    default: 365,
    min: 1,
    max: 36_500,
    doc: "How long entries of the audit log are kept, those of deleted workspaces too",
  }),
  auditFile: text("SANDGATE_AUDIT_FILE", {
    optional: true,
    doc: "A file to which each entry of the audit log is also appended, as a line of JSON, for a log shipper",
  }),
  ...nodeSettings,
  namespaces: integer("SANDGATE_KUBERNETES_NAMESPACES", {
    default: 1,
    min: 1,
    max: 100,
    doc: "On Kubernetes, as sandbox's: the number of namespaces that workspaces are spread over",
  }),
  podTelemetry: choice("SANDGATE_POD_TELEMETRY", ["collectors", "api-server"], {
    default: "collectors",
    doc: "On Kubernetes, where logs and figures of sandboxes come from: collectors on the nodes, or the API server, which telemetry then asks itself. A platform in one process without SANDGATE_KUBELET_URL asks the API server in any case. Don't change it while there are sandboxes",
  }),
  kubeletUrl: text("SANDGATE_KUBELET_URL", {
    ...kubeletUrl,
    optional: true,
    doc: "On Kubernetes, the kubelet of this process's own node, https://host:10250; the process then collects that node's pods itself",
  }),
});
