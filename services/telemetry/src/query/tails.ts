import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { ChunkKind } from "../store/chunks.ts";
import type { LogRow, MetricRow, Numbered, StreamName } from "../store/rows.ts";
import type { SandboxRecord, StoredChunk, TelemetryStore } from "../store/store.ts";
import { openLogChunk, openMetricChunk } from "./queries.ts";
import { watchStored } from "./stored-watch.ts";

const page = 8;

export type TailRow = { position: string } & ({ log: LogRow } | { metric: MetricRow });

/** The sequences of the last rows seen. */
type Position = Record<ChunkKind, number>;

/**
 * Rows in the order they were stored, from behind `position` (empty: from now on), each once. Ends when nothing will follow from
 * any container of the sandbox, or on the signal. Throws VALIDATION_ERROR for a position that is none, and SANDBOX_NOT_FOUND
 * for a sandbox of another workspace.
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
  const find = async (): Promise<SandboxRecord | undefined> => {
    const sandbox = await store.findSandbox(sandboxId);
    if (sandbox && sandbox.workspaceId !== o.workspaceId) {
      throw new DomainError("SANDBOX_NOT_FOUND", "There is no such sandbox.");
    }
    return sandbox;
  };
  const given = o.position === "" ? undefined : parsePosition(o.position);

  const stored = watchStored(bus, sandboxId);
  try {
    let sandbox = await find();
    const position = given ?? { ...(sandbox?.sequences ?? { logs: 0, metrics: 0 }) };
    while (!signal.aborted) {
      sandbox = await find();
      if (o.include.logs) {
        for await (const { sequence, ...log } of rowsAfter(o, "logs", position.logs, openLogChunk)) {
          position.logs = sequence;
          if (o.stream === undefined || log.stream === o.stream) yield { position: formatPosition(position), log };
          if (signal.aborted) return;
        }
      }
      if (o.include.metrics) {
        for await (const { sequence, ...metric } of rowsAfter(o, "metrics", position.metrics, openMetricChunk)) {
          position.metrics = sequence;
          yield { position: formatPosition(position), metric };
          if (signal.aborted) return;
        }
      }
      // What was final before the rows were read has all its rows read.
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
  open: (chunk: StoredChunk) => Promise<Numbered<R>[]>,
): AsyncGenerator<Numbered<R>> {
  for (let sequence = from; ; ) {
    const chunks = await store.listChunksAfter({ sandboxId, kind, sequence, limit: page });
    for (const chunk of chunks) {
      for (const row of await open(chunk)) {
        if (row.sequence <= sequence) continue;
        sequence = row.sequence;
        yield row;
      }
    }
    if (chunks.length < page) return;
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
