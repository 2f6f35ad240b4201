import { setTimeout as delay } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import { type Backoff, backoffMs } from "@sandgate/kit/base/backoff";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import { asService } from "@sandgate/kit/rpc/context";
import {
  type IngestTelemetryRequestSchema,
  LogStream,
  SourceKind,
  type TelemetryService,
} from "@sandgate/proto/telemetry/v1/telemetry";
import type { LimitFunction } from "p-limit";
import type { Source } from "../domain/batches.ts";
import type { ChunkKind } from "../domain/chunks.ts";
import { type LogRow, type MetricRow, toTimestamp } from "../domain/rows.ts";

export type IngestClient = Pick<Client<typeof TelemetryService>, "ingestTelemetry">;

/** The stored cursor is not the writer's: the source has to be read again from the stored one. */
export class CursorMoved extends Error {
  override readonly name = "CursorMoved";
}

/** The store accepts nothing of this source, now or later. */
export class SourceRefused extends Error {
  override readonly name = "SourceRefused";
}

/** The rows of a batch, and the source's cursor after them. */
export interface Rows {
  logs?: readonly LogRow[];
  metrics?: readonly MetricRow[];
  toCursor: string;
  /** Nothing will follow. */
  final?: boolean;
}

/** Stores the batches of one source in their order. */
export interface SourceWriter {
  /** The last known stored cursor. */
  readonly cursor: string;
  /**
   * Stores the rows between the cursor and `toCursor`; retries for as long as the store can't be reached. They are taken
   * once, when their turn has come, so that those which come while others are being stored need no call of their own.
   * Throws CursorMoved, after which `cursor` is the stored one, SourceRefused, or the signal's reason.
   */
  write(take: () => Rows): Promise<void>;
}

/** The sandbox or workspace is gone, or the rows are invalid. A sandbox has its record before its container. */
const finalReasons: ReadonlySet<DomainError["reason"]> = new Set([
  "SANDBOX_NOT_FOUND",
  "WORKSPACE_NOT_FOUND",
  "CONFLICT",
  "VALIDATION_ERROR",
]);

type IngestRequest = MessageInitShape<typeof IngestTelemetryRequestSchema>;

const retry: Backoff = { firstMs: 200, lastMs: 10_000 };

const kinds: Record<ChunkKind, SourceKind> = { logs: SourceKind.LOGS, metrics: SourceKind.METRICS };

/** Registers the source with the store and learns its cursor: "0" for a new one. */
export async function openSourceWriter(o: {
  source: Omit<Source, "workspaceId">;
  client: IngestClient;
  /** Limits the batches on their way at once. */
  limit: LimitFunction;
  logger: Logger;
  signal: AbortSignal;
}): Promise<SourceWriter> {
  const { client, limit, logger, signal } = o;
  const { sandboxId, kind } = o.source;
  const source = { ...o.source, kind: kinds[kind] };
  let cursor = "";

  const send = async (takeRequest: () => IngestRequest) => {
    let request: IngestRequest | undefined;
    for (let failures = 1; ; failures++) {
      try {
        return await limit(() => {
          signal.throwIfAborted();
          request ??= takeRequest();
          return client.ingestTelemetry(request, asService({ signal }));
        });
      } catch (error) {
        signal.throwIfAborted();
        const reason = error instanceof DomainError ? error.reason : undefined;
        if (reason !== undefined && finalReasons.has(reason)) {
          throw new SourceRefused(`The store refused ${kind} of ${sandboxId}`, { cause: error });
        }
        const level = failures === 1 ? "warn" : "debug";
        logger[level]({ err: error, sandboxId }, "telemetry can't be stored yet");
        await delay(backoffMs(failures, retry), undefined, { signal });
      }
    }
  };

  const opened = await send(() => ({ source, toCursor: "0" }));
  cursor = opened.storedCursor;

  return {
    get cursor() {
      return cursor;
    },
    async write(take) {
      let toCursor = "";
      const answer = await send(() => {
        const rows = take();
        toCursor = rows.toCursor;
        return { source, fromCursor: cursor, ...toRequest(rows) };
      });
      // Refused with the cursor at the batch's end: an earlier attempt stored it, and its answer was lost.
      const moved = !answer.accepted && answer.storedCursor !== toCursor;
      cursor = answer.storedCursor;
      if (moved) throw new CursorMoved(`The store is at ${cursor}`);
    },
  };
}

function toRequest({ logs = [], metrics = [], toCursor, final = false }: Rows) {
  return {
    toCursor,
    logs: logs.map(({ timeNs, stream, log }) => ({
      timestamp: toTimestamp(timeNs),
      stream: stream === "stdout" ? LogStream.STDOUT : LogStream.STDERR,
      log,
    })),
    metrics: metrics.map(({ timeNs, cpuSeconds, memoryBytes }) => ({
      timestamp: toTimestamp(timeNs),
      cpuUsage: cpuSeconds,
      memoryUsage: memoryBytes,
    })),
    final,
  };
}
