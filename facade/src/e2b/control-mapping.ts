import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { invalid } from "@sandgate/kit/base/domain-error";
import { mebibyte } from "@sandgate/kit/base/sizes";
import type { Sandbox } from "@sandgate/proto/sandbox/v1/sandbox";
import type { MetricPoint } from "@sandgate/proto/telemetry/v1/telemetry";
import { present } from "../pipeline/messages/contract.ts";
import { toIsoMillis } from "../pipeline/messages/times.ts";

/** What every sandbox of the platform may use. */
export interface Limits {
  cpus: number;
  diskMb: number;
}

/** The newest whose SDKs take what is missing here for an older server's, and say so by themselves. */
const envdVersion = "0.6.1";
/** The machine that a sandbox runs on, which E2B's SDKs have no use for. */
const clientId = "sandgate";
/** The label of a sandbox whose ports are not open to everybody. */
export const privateLabel = "sandgate.io/private-ports";
/** Of a sandbox that has no end. */
const never = "9999-12-31T23:59:59.999Z";

/** A sandbox as it is listed, under its name for E2B's programs. */
export function toListedSandbox(sandbox: Sandbox, name: string, { cpus, diskMb }: Limits) {
  return {
    templateID: sandbox.imageId,
    sandboxID: name,
    clientID: clientId,
    ...(sandbox.imageName !== "" && { alias: sandbox.imageName }),
    startedAt: toIsoMillis(startOf(sandbox)),
    endAt: sandbox.expiresAt ? toIsoMillis(sandbox.expiresAt) : never,
    cpuCount: cpus,
    memoryMB: sandbox.memoryMb,
    diskSizeMB: diskMb,
    state: "running",
    metadata: Object.fromEntries(Object.entries(sandbox.labels).filter(([name]) => name !== privateLabel)),
    envdVersion,
  };
}

/** What a program needs to use a sandbox, besides its name. */
export interface SandboxAccess {
  envdAccessToken: string;
  domain: string;
}

/** A sandbox that was opened, under its name for E2B's programs. */
export function toOpenedSandbox(
  sandbox: Sandbox,
  { name, trafficToken, ...access }: SandboxAccess & { name: string; trafficToken: string | undefined },
) {
  return {
    templateID: sandbox.imageId,
    sandboxID: name,
    clientID: clientId,
    ...(sandbox.imageName !== "" && { alias: sandbox.imageName }),
    envdVersion,
    ...access,
    trafficAccessToken: trafficToken ?? null,
  };
}

export function isPrivate({ labels }: Sandbox): boolean {
  return Object.hasOwn(labels, privateLabel);
}

export function startOf({ timeline, createdAt }: Sandbox): Timestamp {
  return present(timeline.find(({ phase }) => phase === "started")?.at ?? createdAt);
}

/** Whether its time to live is over, though it may be about to be ended. */
export function hasExpired({ expiresAt }: Sandbox, nowMs: number): boolean {
  return expiresAt !== undefined && msOf(expiresAt) <= nowMs;
}

export function msOf({ seconds, nanos }: Pick<Timestamp, "seconds" | "nanos">): number {
  return Number(seconds) * 1000 + nanos / 1_000_000;
}

/** The pairs of a filter: a query string whose names and values are encoded once more. */
export function fromMetadataFilter(filter: string | undefined): Record<string, string> {
  const pairs: Record<string, string> = Object.create(null);
  try {
    for (const [name, value] of new URLSearchParams(filter))
      pairs[decodeURIComponent(name)] = decodeURIComponent(value);
  } catch {
    throw invalid("query.metadata", "must be name=value pairs in percent-encoding, joined by &");
  }
  return pairs;
}

/** Samples with the share of the CPU time since the one before. Of the first that is unknown, so it isn't shown. */
export function toMetrics(points: readonly MetricPoint[], memoryMb: number, { cpus, diskMb }: Limits) {
  return points.flatMap((point, index) => {
    const before = points[index - 1];
    if (!before) return [];
    const timestamp = present(point.timestamp);
    const seconds = (msOf(timestamp) - msOf(present(before.timestamp))) / 1000;
    const used = Math.max(0, point.cpuUsage - before.cpuUsage);
    return {
      timestamp: toIsoMillis(timestamp),
      timestampUnix: Number(timestamp.seconds),
      cpuCount: cpus,
      cpuUsedPct: seconds > 0 ? Math.round((used / seconds / cpus) * 10_000) / 100 : 0,
      memUsed: point.memoryUsage,
      memTotal: memoryMb * mebibyte,
      memCache: 0,
      diskUsed: 0,
      diskTotal: diskMb * mebibyte,
    };
  });
}
