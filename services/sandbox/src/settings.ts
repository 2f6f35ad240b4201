import { parseEngineAddress, runtimeSetting } from "@sandgate/docker-engine/address";
import { diskReserveSetting, inodeReserveSetting } from "@sandgate/kit/base/disk-space";
import { messageOf } from "@sandgate/kit/base/domain-error";
import {
  choice,
  defineSettings,
  flag,
  integer,
  list,
  SettingsError,
  type SettingValues,
  text,
} from "@sandgate/kit/base/settings";
import { type AllowedHosts, readAllowedHosts, registryAllowSetting } from "@sandgate/registry-client/allowed-hosts";
import { defaultSubnetRange, parseSubnetRanges, type Subnet } from "./runtime/docker/subnets.ts";
import {
  checkResolvers,
  type Destination,
  parseAllowedDestination,
  parseDestination,
} from "./runtime/isolation/egress.ts";

export const sandboxSettings = defineSettings({
  runtime: runtimeSetting,
  isolation: choice("SANDGATE_ISOLATION", ["on", "off"], {
    default: "on",
    doc: "Network isolation. off runs sandboxes even where the rules that separate them from the host and each other can't be set",
  }),
  ociRuntime: text("SANDGATE_OCI_RUNTIME", {
    optional: true,
    doc: "The engine's OCI runtime for sandboxes, such as runsc (gVisor); on Kubernetes the RuntimeClass. Unset: the default of either",
  }),
  registration: choice("SANDGATE_REGISTRATION", ["open", "closed"], {
    default: "open",
    doc: "As identity's. While anybody may register, the start warns of an engine that shares its kernel with sandboxes as root",
  }),
  cpus: integer("SANDGATE_SANDBOX_CPUS", { default: 1, min: 1, max: 256, doc: "CPU cores a sandbox may use" }),
  pids: integer("SANDGATE_SANDBOX_PIDS", {
    default: 512,
    min: 16,
    max: 32_768,
    doc: "Processes and threads a sandbox may have",
  }),
  diskMb: integer("SANDGATE_SANDBOX_DISK_MB", {
    default: 10_240,
    min: 16,
    doc: "MB a sandbox may write to its own file system. Where the engine's storage can't limit that, it is measured, and a sandbox above it fails",
  }),
  inodes: integer("SANDGATE_SANDBOX_INODES", {
    default: 0,
    min: 0,
    doc: "Inodes that a sandbox may use on an engine's disk, which are its files and folders besides those of its image. They are counted, and a sandbox above it fails. 0: 64 for each MB of SANDGATE_SANDBOX_DISK_MB",
  }),
  fileMaxMb: integer("SANDGATE_FILE_MAX_MB", {
    default: 5_120,
    min: 1,
    max: 1_048_576,
    doc: "The largest file in MB that a client may send to a sandbox",
  }),
  archiveMaxMb: integer("SANDGATE_ARCHIVE_MAX_MB", {
    default: 10_240,
    min: 1,
    max: 1_048_576,
    doc: "The largest archive in MB, not compressed, that a client may send to a sandbox",
  }),
  nameservers: list("SANDGATE_SANDBOX_NAMESERVERS", {
    default: ["1.1.1.1", "8.8.8.8"],
    doc: "Resolvers that sandboxes use, as one to three IPv4 addresses. A resolver in a private range is reachable on port 53",
  }),
  maxConnections: integer("SANDGATE_SANDBOX_MAX_CONNECTIONS", {
    default: 1_024,
    min: 0,
    max: 1_000_000,
    doc: "Connections and UDP flows to the outside that a sandbox may have at once. 0: no limit",
  }),
  newConnectionsPerSecond: integer("SANDGATE_SANDBOX_NEW_CONNECTIONS_PER_SECOND", {
    default: 100,
    min: 0,
    max: 10_000,
    doc: "Connections and UDP flows that a sandbox may open in a second, with bursts of five times as many. 0: no limit",
  }),
  allowSmtp: flag("SANDGATE_SANDBOX_ALLOW_SMTP", {
    default: false,
    doc: "Whether sandboxes reach TCP port 25 outside, and so can send mail themselves",
  }),
  egressDeny: list("SANDGATE_SANDBOX_EGRESS_DENY", {
    default: [],
    doc: "IPv4 addresses or networks, each with an optional :port, that sandboxes don't reach, besides all private ones. They take precedence over those allowed",
  }),
  bandwidthMbit: integer("SANDGATE_SANDBOX_BANDWIDTH_MBIT", {
    default: 0,
    min: 0,
    max: 10_000,
    doc: "Megabits a second that a sandbox may send to the outside, and as many that it may receive, with bursts of two seconds' worth. 0: no limit",
  }),
  subnets: list("SANDGATE_SANDBOX_SUBNETS", {
    default: [defaultSubnetRange],
    doc: "Private IPv4 networks that sandboxes get their addresses from, 256 at a time. Networks that this host routes elsewhere are left out",
  }),
  allPids: integer("SANDGATE_SANDBOXES_PIDS", {
    default: 0,
    min: 0,
    doc: "Processes and threads that all sandboxes together may have. 0: three quarters of what the host can have",
  }),
  allMemoryMb: integer("SANDGATE_SANDBOXES_MEMORY_MB", {
    default: 0,
    min: 0,
    doc: "MB of memory that all sandboxes together may use. 0: nine tenths of the host's",
  }),
  allCpuWeight: integer("SANDGATE_SANDBOXES_CPU_WEIGHT", {
    default: 100,
    min: 1,
    max: 10_000,
    doc: "The CPU weight of all sandboxes together while CPU time is scarce. Everything else on the host has 100",
  }),
  egressAllow: list("SANDGATE_SANDBOX_EGRESS_ALLOW", {
    default: [],
    doc: "Private IPv4 addresses or networks, each with an optional :port, that sandboxes may reach all the same. On Docker Engine this host stays out of reach; on Kubernetes nodes and pods in these networks are reached: name them in SANDGATE_SANDBOX_EGRESS_DENY",
  }),
  maxSandboxes: integer("SANDGATE_WORKSPACE_MAX_SANDBOXES", {
    default: 100,
    min: 0,
    doc: "Sandboxes a workspace may hold at once. 0: no limit",
  }),
  maxMemoryMb: integer("SANDGATE_WORKSPACE_MAX_MEMORY_MB", {
    default: 65_536,
    min: 0,
    doc: "Memory in MB that a workspace's sandboxes may hold together. 0: no limit",
  }),
  maxSandboxesOfUser: integer("SANDGATE_USER_MAX_SANDBOXES", {
    default: 200,
    min: 0,
    doc: "Sandboxes that all workspaces with the same quota owner may hold at once: the user who created them or took them over. 0: no limit",
  }),
  maxMemoryMbOfUser: integer("SANDGATE_USER_MAX_MEMORY_MB", {
    default: 131_072,
    min: 0,
    doc: "Memory in MB that the sandboxes of all workspaces with the same quota owner may hold together. 0: no limit",
  }),
  recordsMb: integer("SANDGATE_WORKSPACE_RECORDS_MB", {
    default: 64,
    min: 0,
    doc: "MB that the records of a workspace's sandboxes may take, some 30,000 without labels. Above it, those of the longest ended sandboxes are deleted before SANDGATE_SANDBOX_RETENTION_DAYS. 0: no limit",
  }),
  failuresPerHour: integer("SANDGATE_WORKSPACE_FAILURES_PER_HOUR", {
    default: 300,
    min: 0,
    doc: "Sandboxes of a workspace that may fail in an hour without having been ready, for a reason other than the platform's. Above it, nothing is provisioned until the hour is over. 0: no limit",
  }),
  allowedHosts: registryAllowSetting,
  pullPort: integer("SANDGATE_PULL_PORT", {
    default: 5080,
    min: 0,
    max: 65_535,
    doc: "The port on 127.0.0.1 that the container engine on this host pulls images from. 0: any free port",
  }),
  data: text("SANDGATE_DATA", {
    default: "./data",
    doc: "Folder of this machine's data. Downloaded layers are kept under it until the engine has them",
  }),
  diskReserveMb: diskReserveSetting,
  diskReserveInodes: inodeReserveSetting,
  pullReservePercent: integer("SANDGATE_PULL_RESERVE_PERCENT", {
    default: 0,
    min: 0,
    max: 100,
    doc: "Percent of this machine's disks that downloaded layers leave free, where that is more than SANDGATE_DISK_RESERVE_MB: on a node of a cluster more than what its kubelet evicts pods at",
  }),
  imageMaxMb: integer("SANDGATE_IMAGE_MAX_MB", {
    default: 10_240,
    min: 1,
    doc: "MB that the layers of an image may have together, as they are downloaded",
  }),
  imageCacheMb: integer("SANDGATE_IMAGE_CACHE_MB", {
    default: 20_480,
    min: 0,
    doc: "MB that pulled images may take on the engine. Each counts in full, and as 16 MB at least. The least recently used images are removed above this limit, and while a disk has less free space than its reserve. 0: no limit",
  }),
  maxSandboxesInAll: integer("SANDGATE_MAX_SANDBOXES", {
    default: 0,
    min: 0,
    doc: "Sandboxes all workspaces together may hold at once. 0: no limit",
  }),
  maxMemoryMbInAll: integer("SANDGATE_MAX_MEMORY_MB", {
    default: 0,
    min: 0,
    doc: "Memory in MB that the sandboxes of all workspaces may hold together. 0: no limit",
  }),
  namespace: text("SANDGATE_KUBERNETES_NAMESPACE", {
    default: "sandgate-sandboxes",
    accepts: (name) => /^[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?$/.test(name),
    expects: "a name of lower-case letters, digits and hyphens, 52 at most",
    doc: "On Kubernetes, the namespace of the sandboxes' pods",
  }),
  namespaces: integer("SANDGATE_KUBERNETES_NAMESPACES", {
    default: 1,
    min: 1,
    max: 100,
    doc: "On Kubernetes, the number of namespaces that workspaces are spread over. Several are named -0, -1 and so on. Don't change it while there are sandboxes",
  }),
  writesPerSecond: integer("SANDGATE_KUBERNETES_WRITES_PER_SECOND", {
    default: 200,
    min: 1,
    max: 10_000,
    doc: "On Kubernetes, the most writing requests a second that this process sends to the API server",
  }),
  cpuRequestMillis: integer("SANDGATE_SANDBOX_CPU_REQUEST_MILLIS", {
    default: 50,
    min: 1,
    max: 256_000,
    doc: "On Kubernetes, thousandths of a core that the scheduler reserves for a sandbox",
  }),
  podSecurity: choice("SANDGATE_POD_SECURITY", ["baseline", "restricted"], {
    default: "baseline",
    doc: "On Kubernetes, the Pod Security level of sandboxes. restricted runs no image as root",
  }),
  helperImage: text("SANDGATE_HELPER_IMAGE", {
    optional: true,
    doc: "On Kubernetes, the image that has the helper for commands and files at /app/helper, as the platform's own has. Nodes pull it without a credential of the platform's. Unset: sandboxes have no helper",
  }),
  userNamespaces: flag("SANDGATE_USER_NAMESPACES", {
    default: false,
    doc: "On Kubernetes, whether root in a sandbox is nobody on its node. Needs containerd 2 or CRI-O, and a kernel with idmapped mounts",
  }),
  schedulingTimeoutSeconds: integer("SANDGATE_SCHEDULING_TIMEOUT_SECONDS", {
    default: 120,
    min: 1,
    max: 86_400,
    doc: "On Kubernetes, how long a sandbox waits for a node that can run it, such as one that an autoscaler adds",
  }),
  nodeLostSeconds: integer("SANDGATE_NODE_LOST_SECONDS", {
    default: 120,
    min: 0,
    max: 86_400,
    doc: "On Kubernetes, how long a node may be unreachable before its sandboxes are given up",
  }),
  pullTimeoutSeconds: integer("SANDGATE_PULL_TIMEOUT_SECONDS", {
    default: 600,
    min: 1,
    max: 86_400,
    doc: "How long the pull of an image may take, and how long an engine that is down is waited for",
  }),
  readinessTimeoutSeconds: integer("SANDGATE_READINESS_TIMEOUT_SECONDS", {
    default: 120,
    min: 1,
    max: 86_400,
    doc: "How long a sandbox may take from its container's start until it is ready",
  }),
  retentionDays: integer("SANDGATE_SANDBOX_RETENTION_DAYS", {
    default: 30,
    min: 1,
    max: 3_650,
    doc: "How long the records of ended sandboxes are kept",
  }),
  confirmOrphanRemoval: flag("SANDGATE_CONFIRM_ORPHAN_REMOVAL", {
    default: false,
    doc: "Remove containers without a record even when there are many at once, as after restoring an old backup",
  }),
});

export type SandboxSettings = Omit<
  SettingValues<typeof sandboxSettings>,
  "allowedHosts" | "egressDeny" | "egressAllow" | "subnets"
> & {
  readonly allowedHosts: AllowedHosts;
  readonly egressDeny: readonly Destination[];
  readonly egressAllow: readonly Destination[];
  readonly subnets: readonly Subnet[];
};

/**
 * Throws a SettingsError for registries, resolvers, destinations and subnets that can't be used, and for an engine that
 * can't pull from this process.
 */
export function parseSandboxSettings(settings: SettingValues<typeof sandboxSettings>): SandboxSettings {
  const engine = parseEngineAddress(settings.runtime);
  if (engine && "host" in engine && !/^(localhost|127(\.\d+){3}|\[?::1\]?)$/.test(engine.host)) {
    throw new SettingsError([
      `${sandboxSettings.runtime.name} names an engine on another host: the sandbox process has to run beside it, since it pulls images from 127.0.0.1`,
    ]);
  }
  const problems: string[] = [];
  const read = <T, R>(name: string, value: T, parse: (value: T) => R): R | undefined => {
    try {
      return parse(value);
    } catch (error) {
      problems.push(`${name}: ${messageOf(error)}`);
      return undefined;
    }
  };
  const allowedHosts = read(sandboxSettings.allowedHosts.name, settings.allowedHosts, readAllowedHosts);
  const nameservers = read(sandboxSettings.nameservers.name, settings.nameservers, checkResolvers);
  const egressDeny = read(sandboxSettings.egressDeny.name, settings.egressDeny, (each) => each.map(parseDestination));
  const egressAllow = read(sandboxSettings.egressAllow.name, settings.egressAllow, (each) =>
    each.map(parseAllowedDestination),
  );
  const subnets = read(sandboxSettings.subnets.name, settings.subnets, parseSubnetRanges);
  if (!allowedHosts || !nameservers || !egressDeny || !egressAllow || !subnets) throw new SettingsError(problems);
  return { ...settings, allowedHosts, nameservers, egressDeny, egressAllow, subnets };
}
