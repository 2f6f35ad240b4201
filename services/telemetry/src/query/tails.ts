import { setImmediate as nextTurn } from "node:timers/promises";
import { invalid } from "@sandgate/kit/base/domain-error";
import type { EventBus } from "@sandgate/kit/events/bus";
import { isKindFinal } from "../domain/batches.ts";
import { type ChunkKind, type OpenChunk, openLogs, openMetrics, type StoredChunk } from "../domain/chunks.ts";
import type { LogRow, MetricRow, StreamName } from "../domain/rows.ts";
import { watchStored } from "../events.ts";
import type { TelemetryStore } from "../store/store.ts";
import { findOwn } from "./ownership.ts";

/** Chunks read from the store at once. */
const pageSize = 8;
/**
 * After so many bytes of rows the process gets a turn for something else, because rows that are stored already come
 * without a wait between them. A row counts as `rowBytes` and its text.
 */
const turnBytes = 64 * 1024;
const rowBytes = 512;

/** A row and its position; without a row, where a tail begins. */
export interface TailRow {
  position: string;
  log?: LogRow;
  metric?: MetricRow;
}

const kinds = ["logs", "metrics"] as const satisfies readonly ChunkKind[];

/** The sequences of the last rows that were sent. */
type Position = Record<ChunkKind, number>;

/**
 * Rows in the order they were stored, each once, after `position`. If that is empty, from now on: the first item is then
 * the position that this is, so that a tail which breaks off before its first row can be resumed too. Ends when nothing
 * of the kinds that it includes will follow from any container of the sandbox, or when the signal aborts. Throws
 * VALIDATION_ERROR for a malformed position, and SANDBOX_NOT_FOUND for a sandbox of another workspace.
 */
export async function* tailRows(o: {
  store: Pick<TelemetryStore, "chunks" | "sources">;
  bus: EventBus;
  sandboxId: string;
  workspaceId: string;
  position: string;
  stream: StreamName | undefined;
  include: Record<ChunkKind, boolean>;
  signal: AbortSignal;
}): AsyncGenerator<TailRow> {
  const { store, bus, sandboxId, signal } = o;
  const given = o.position === "" ? undefined : parsePosition(o.position);

  const stored = watchStored(bus, sandboxId);
  try {
    let sandbox = await findOwn(store, o);
    const position = given ?? { ...(sandbox?.sequences ?? { logs: 0, metrics: 0 }) };
    if (!given) yield { position: formatPosition(position) };
    while (!signal.aborted) {
      sandbox = await findOwn(store, o);
      if (o.include.logs) {
        for await (const { chunk, index, sequence } of rowsAfter(o, "logs", position.logs, openLogs)) {
          position.logs = sequence;
          if (o.stream === undefined || chunk.streamAt(index) === o.stream) {
            yield { position: formatPosition(position), log: chunk.rowAt(index) };
          }
          if (signal.aborted) return;
        }
      }
      if (o.include.metrics) {
        for await (const { chunk, index, sequence } of rowsAfter(o, "metrics", position.metrics, openMetrics)) {
          position.metrics = sequence;
          yield { position: formatPosition(position), metric: chunk.rowAt(index) };
          if (signal.aborted) return;
        }
      }
      // Logs and samples are registered apart, so the end of one says nothing of the other. They were final before their
      // rows were read, so all of these were.
      if (kinds.every((kind) => !o.include[kind] || isKindFinal(sandbox, kind))) return;
      await stored.next(signal);
    }
  } finally {
    stored.stop();
  }
}

/** The rows after a sequence, by chunk and index, in the order they were stored. */
async function* rowsAfter<O extends OpenChunk<unknown>>(
  { store, sandboxId }: { store: Pick<TelemetryStore, "chunks">; sandboxId: string },
  kind: ChunkKind,
  from: number,
  open: (chunk: StoredChunk) => Promise<O>,
): AsyncGenerator<{ chunk: O; index: number; sequence: number }> {
  let bytes = 0;
  for (let after = from; ; ) {
    const chunks = await store.chunks.listAfter({ sandboxId, kind, sequence: after, limit: pageSize });
    for (const stored of chunks) {
      const { firstSequence } = stored;
      const chunk = await open(stored);
      for (let index = Math.max(0, after + 1 - firstSequence); index < chunk.timesNs.length; index++) {
        after = firstSequence + index;
        bytes += rowBytes + chunk.textBytesAt(index);
        if (bytes > turnBytes) {
          bytes = 0;
          await nextTurn();
        }
        yield { chunk, index, sequence: after };
      }
    }
    if (chunks.length < pageSize) return;
  }
}

function formatPosition({ logs, metrics }: Position): string {
  return `${logs}.${metrics}`;
}

function parsePosition(text: string): Position {
  const [, logs, metrics] = /^(\d{1,15})\.(\d{1,15})$/.exec(text) ?? [];
  if (logs === undefined) throw invalid("header.last-event-id", "is not an id that this stream gave");
  return { logs: Number(logs), metrics: Number(metrics) };
}
