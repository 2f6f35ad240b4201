import { setTimeout as delay } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import { asService } from "@sandgate/kit/rpc/context";
import {
  type IngestTelemetryRequestSchema,
  LogStream,
  SourceKind,
  type TelemetryService,
} from "@sandgate/proto/telemetry/v1/telemetry";
import type { ChunkKind } from "../store/chunks.ts";
import { type LogRow, type MetricRow, toTimestamp } from "../store/rows.ts";
import type { Source } from "../store/store.ts";

export type IngestClient = Pick<Client<typeof TelemetryService>, "ingestTelemetry">;

/** The stored cursor is another than this collector's: it must go on from there. */
export class CursorMoved extends Error {
  override readonly name = "CursorMoved";
}

/** The store takes nothing from this source, now or later. */
export class SourceRefused extends Error {
  override readonly name = "SourceRefused";
}

/** Writes one source's batches in their order. */
export interface SourceWriter {
  /** Where the store is. */
  readonly cursor: string;
  /**
   * Stores rows from the cursor to the next, waiting for a store that can't be reached. Throws CursorMoved, after which
   * `cursor` is the stored one, SourceRefused, or the signal's reason.
   */
  write(
    rows: { logs?: readonly LogRow[]; metrics?: readonly MetricRow[] },
    toCursor: string,
    final: boolean,
  ): Promise<void>;
}

/** Runs at most so many at once, in the order they came. */
export type Limiter = <T>(work: () => Promise<T>) => Promise<T>;

export function createLimiter(most: number): Limiter {
  let running = 0;
  const waiting: (() => void)[] = [];
  return async (work) => {
    if (running < most) running += 1;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = waiting.shift();
      if (next) next();
      else running -= 1;
    }
  };
}

const firstRetryMs = 200;
const lastRetryMs = 10_000;

/** Announces the source to the store and learns its cursor: "0" for a new one. */
export async function openSourceWriter(o: {
  source: Source;
  client: IngestClient;
  limiter: Limiter;
  logger: Logger;
  signal: AbortSignal;
}): Promise<SourceWriter> {
  const { client, signal } = o;
  const source = { ...o.source, kind: kinds[o.source.kind] };
  let cursor = "";

  const send = async (request: MessageInitShape<typeof IngestTelemetryRequestSchema>) => {
    for (let retryMs = firstRetryMs; ; retryMs = Math.min(retryMs * 2, lastRetryMs)) {
      try {
        return await o.limiter(() => client.ingestTelemetry(request, asService({ signal })));
      } catch (error) {
        signal.throwIfAborted();
        const reason = error instanceof DomainError ? error.reason : undefined;
        if (reason === "WORKSPACE_NOT_FOUND" || reason === "CONFLICT" || reason === "VALIDATION_ERROR") {
          throw new SourceRefused(`The store refused ${o.source.kind} of ${o.source.sandboxId}`, { cause: error });
        }
        const level = retryMs === firstRetryMs ? "warn" : "debug";
        o.logger[level]({ err: error, sandboxId: o.source.sandboxId }, "telemetry can't be stored yet");
        await delay(retryMs, undefined, { signal });
      }
    }
  };

  const opened = await send({ source, toCursor: "0" });
  cursor = opened.storedCursor;

  return {
    get cursor() {
      return cursor;
    },
    async write({ logs = [], metrics = [] }, toCursor, final) {
      const answer = await send({
        source,
        fromCursor: cursor,
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
      });
      const moved = !answer.accepted && answer.storedCursor !== toCursor;
      cursor = answer.storedCursor;
      // Not accepted and yet at its end: an earlier try was stored, and its answer was lost.
      if (moved) throw new CursorMoved(`The store is at ${cursor}`);
    },
  };
}

const kinds: Record<ChunkKind, SourceKind> = { logs: SourceKind.LOGS, metrics: SourceKind.METRICS };
