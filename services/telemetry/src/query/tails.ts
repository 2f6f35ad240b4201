import { invalid } from "@sandgate/kit/base/domain-error";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { ChunkKind } from "../store/chunks.ts";
import type { LogRow, MetricRow, Numbered, StreamName } from "../store/rows.ts";
import type { StoredChunk, TelemetryStore } from "../store/store.ts";
import { watchStored } from "../store/stored-signal.ts";
import { findOwn } from "./ownership.ts";
import { decodeLogChunk, decodeMetricChunk } from "./queries.ts";

/** Chunks read from the store at once. */
const pageSize = 8;

export type TailRow = { position: string } & ({ log: LogRow } | { metric: MetricRow });

/** The sequences of the last rows that were sent. */
type Position = Record<ChunkKind, number>;

/**
 * Rows in the order they were stored, each once, after `position` (empty: from now on). Ends when nothing will follow from any
 * container of the sandbox, or when the signal aborts. Throws VALIDATION_ERROR for a malformed position, and
 * SANDBOX_NOT_FOUND for a sandbox of another workspace.
 */
export async function* tailRows(o: {
  store: TelemetryStore;
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
    while (!signal.aborted) {
      sandbox = await findOwn(store, o);
      if (o.include.logs) {
        for await (const { sequence, ...log } of rowsAfter(o, "logs", position.logs, decodeLogChunk)) {
          position.logs = sequence;
          if (o.stream === undefined || log.stream === o.stream) yield { position: formatPosition(position), log };
          if (signal.aborted) return;
        }
      }
      if (o.include.metrics) {
        for await (const { sequence, ...metric } of rowsAfter(o, "metrics", position.metrics, decodeMetricChunk)) {
          position.metrics = sequence;
          yield { position: formatPosition(position), metric };
          if (signal.aborted) return;
        }
      }
      // It was final before its rows were read, so all of them were.
      if (sandbox?.final) return;
      await stored.next(signal);
    }
  } finally {
    stored.stop();
  }
}

async function* rowsAfter<R>(
  { store, sandboxId }: { store: TelemetryStore; sandboxId: string },
  kind: ChunkKind,
  from: number,
  decode: (chunk: StoredChunk) => Promise<Numbered<R>[]>,
): AsyncGenerator<Numbered<R>> {
  for (let sequence = from; ; ) {
    const chunks = await store.listChunksAfter({ sandboxId, kind, sequence, limit: pageSize });
    for (const chunk of chunks) {
      for (const row of await decode(chunk)) {
        if (row.sequence <= sequence) continue;
        sequence = row.sequence;
        yield row;
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
