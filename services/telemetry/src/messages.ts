import { create } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { invalid } from "@sandgate/kit/base/domain-error";
import { hourMs } from "@sandgate/kit/base/time";
import { toCredential } from "@sandgate/kit/rpc/access";
import { createMessage } from "@sandgate/kit/rpc/messages";
import { Credential } from "@sandgate/proto/common/v1/access";
import { type AuditEntry as AuditEntryMessage, AuditEntrySchema } from "@sandgate/proto/telemetry/v1/audit";
import {
  type IngestTelemetryRequest,
  type LogEntry,
  LogEntrySchema,
  LogStream,
  type MetricPoint,
  MetricPointSchema,
  type QueryTelemetryRequest,
  SourceKind,
  type TailTelemetryResponse,
  TailTelemetryResponseSchema,
} from "@sandgate/proto/telemetry/v1/telemetry";
import { type AuditEntry, credentialOf, withDetails } from "./domain/audit.ts";
import type { Batch } from "./domain/batches.ts";
import { type Chunk, encodeLogs, encodeMetrics } from "./domain/chunks.ts";
import {
  fromMillis,
  fromTimestamp,
  type LogRow,
  type MetricRow,
  maxBatchBytes,
  maxLineBytes,
  type StreamName,
  toTimestamp,
} from "./domain/rows.ts";
import type { TailRow } from "./query/tails.ts";
import type { Window } from "./query/windows.ts";

/** Undefined: both. */
export function toStreamName(stream: LogStream): StreamName | undefined {
  if (stream === LogStream.UNSPECIFIED) return undefined;
  return stream === LogStream.STDOUT ? "stdout" : "stderr";
}

export function toLogEntry({ timeNs, stream, log }: LogRow): LogEntry {
  return create(LogEntrySchema, {
    timestamp: timestampOf(timeNs),
    stream: stream === "stdout" ? LogStream.STDOUT : LogStream.STDERR,
    log,
  });
}

export function toMetricPoint({ timeNs, cpuSeconds, memoryBytes }: MetricRow): MetricPoint {
  return create(MetricPointSchema, {
    timestamp: timestampOf(timeNs),
    cpuUsage: cpuSeconds,
    memoryUsage: memoryBytes,
  });
}

export function toTailResponse({ position, log, metric }: TailRow): TailTelemetryResponse {
  return create(TailTelemetryResponseSchema, {
    position,
    ...(log && { row: { case: "log", value: toLogEntry(log) } }),
    ...(metric && { row: { case: "metric", value: toMetricPoint(metric) } }),
  });
}

/**
 * The times that a query asks for, the last hour unless it says otherwise. Throws VALIDATION_ERROR for an empty window.
 */
export function toWindow({ since, until }: QueryTelemetryRequest, nowMs: number): Window {
  const window = {
    sinceNs: since ? fromTimestamp(since) : fromMillis(nowMs - hourMs),
    // The current millisecond included.
    untilNs: until ? fromTimestamp(until) : fromMillis(nowMs + 1),
  };
  if (window.sinceNs >= window.untilNs) throw invalid("query.since", "must be before until");
  return window;
}

function timestampOf(timeNs: bigint) {
  return { $typeName: "google.protobuf.Timestamp" as const, ...toTimestamp(timeNs) };
}

/**
 * The request's batch of a sandbox of this workspace, its rows encoded. Throws VALIDATION_ERROR for rows of another
 * kind than the source's, and for lines that are longer or more than our own collectors send.
 */
export async function toBatch(request: IngestTelemetryRequest, workspaceId: string): Promise<Batch> {
  const { source, fromCursor, toCursor, final } = request;
  if (!source) throw invalid("source", "is missing");
  const kind = source.kind === SourceKind.LOGS ? "logs" : "metrics";
  const other = kind === "logs" ? request.metrics : request.logs;
  if (other.length > 0) throw invalid("source.kind", `is ${kind}, but the rows are not`);
  const { sandboxId, containerId } = source;
  const chunk = await (kind === "logs" ? toLogChunk(request.logs) : toMetricChunk(request.metrics));
  return { source: { sandboxId, workspaceId, containerId, kind }, fromCursor, toCursor, chunk, final };
}

async function toLogChunk(entries: readonly LogEntry[]): Promise<Chunk | undefined> {
  if (entries.length === 0) return undefined;
  let bytes = 0;
  const rows = entries.map(({ timestamp, stream, log }, i): LogRow => {
    const name = toStreamName(stream);
    if (!timestamp || !name) throw invalid(`logs[${i}]`, "has no timestamp or no stream");
    const lineBytes = Buffer.byteLength(log);
    if (lineBytes > maxLineBytes) throw invalid(`logs[${i}]`, `is longer than ${maxLineBytes} bytes`);
    bytes += lineBytes;
    if (bytes > maxBatchBytes) throw invalid("logs", `are more than ${maxBatchBytes} bytes together`);
    return { timeNs: fromTimestamp(timestamp), stream: name, log };
  });
  return encodeLogs(rows);
}

async function toMetricChunk(points: readonly MetricPoint[]): Promise<Chunk | undefined> {
  if (points.length === 0) return undefined;
  const rows = points.map(({ timestamp, cpuUsage, memoryUsage }, i): MetricRow => {
    if (!timestamp) throw invalid(`metrics[${i}]`, "has no timestamp");
    return { timeNs: fromTimestamp(timestamp), cpuSeconds: cpuUsage, memoryBytes: memoryUsage };
  });
  return encodeMetrics(rows);
}

export function toEntryMessage({ credential, target, ...entry }: AuditEntry): AuditEntryMessage {
  return createMessage(AuditEntrySchema, {
    ...entry,
    credential: credential ? toCredential(credential.kind) : Credential.UNSPECIFIED,
    credentialId: credential?.id,
    targetType: target?.type,
    targetId: target?.id,
    targetDetails: target?.details ?? {},
  });
}

export function fromEntryMessage(message: AuditEntryMessage): AuditEntry {
  return {
    id: message.id,
    at: message.at ? timestampDate(message.at) : new Date(),
    workspaceId: message.workspaceId || undefined,
    actorId: message.actorId || undefined,
    credential: credentialOf(message.credential, message.credentialId),
    address: message.address || undefined,
    action: message.action,
    target: targetOf(message),
    outcome: message.outcome,
    requestId: message.requestId || undefined,
    count: message.count || 1,
  };
}

function targetOf({ targetType: type, targetId: id, targetDetails: details }: AuditEntryMessage): AuditEntry["target"] {
  return type === "" ? undefined : withDetails({ type, id }, details);
}
