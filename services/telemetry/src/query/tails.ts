import { setImmediate as nextTurn } from "node:timers/promises";
import { invalid } from "@sandgate/kit/base/domain-error";
import type { EventBus } from "@sandgate/kit/events/bus";
import { isKindFinal } from "../domain/batches.ts";
import {
  type ChunkKind,
  type OpenChunk,
  type OpenLogChunk,
  openLogs,
  openMetrics,
  type StoredChunk,
} from "../domain/chunks.ts";
import type { LogRow, MetricRow, StreamName } from "../domain/rows.ts";
import { watchStored } from "../events.ts";
import type { TelemetryStore } from "../store/store.ts";
import { type ChunkReader, type ChunkSlots, readChunk, takeSlot } from "./chunk-slots.ts";
import { findOwn } from "./ownership.ts";
import { createSharedValues, type SharedValues } from "./shared-values.ts";

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

interface OpenedChunk<O> {
  firstSequence: number;
  chunk: O;
}

/** The chunks that tails have open, of each kind: those who follow a sandbox wait for the same rows. */
interface SharedChunks {
  logs: SharedValues<OpenedChunk<OpenLogChunk> | undefined>;
  metrics: SharedValues<OpenedChunk<OpenChunk<MetricRow>> | undefined>;
}

export function createSharedChunks(): SharedChunks {
  return { logs: createSharedValues(), metrics: createSharedValues() };
}

interface TailOptions {
  store: Pick<TelemetryStore, "chunks" | "sources">;
  bus: EventBus;
  slots: ChunkSlots;
  shared: SharedChunks;
  sandboxId: string;
  workspaceId: string;
  position: string;
  stream: StreamName | undefined;
  include: Record<ChunkKind, boolean>;
  signal: AbortSignal;
}

/** How the rows of a kind are read. */
interface RowKind<R, O extends OpenChunk<unknown>> {
  kind: ChunkKind;
  shared: SharedValues<OpenedChunk<O> | undefined>;
  open(chunk: StoredChunk): Promise<O>;
  /** Undefined when the tail leaves the row out. */
  rowAt(chunk: O, index: number): R | undefined;
}

/**
 * Rows in the order they were stored, each once, after `position`. If that is empty, from now on: the first item is then
 * the position that this is, so that a tail which breaks off before its first row can be resumed too. Ends when nothing
 * of the kinds that it includes will follow from any container of the sandbox, or when the signal aborts. Throws
 * VALIDATION_ERROR for a malformed position, and SANDBOX_NOT_FOUND for a sandbox of another workspace.
 */
export async function* tailRows(o: TailOptions): AsyncGenerator<TailRow> {
  const { store, bus, sandboxId, shared, stream, signal } = o;
  const logs: RowKind<LogRow, OpenLogChunk> = {
    kind: "logs",
    shared: shared.logs,
    open: openLogs,
    rowAt: (chunk, index) =>
      stream === undefined || chunk.streamAt(index) === stream ? chunk.rowAt(index) : undefined,
  };
  const metrics: RowKind<MetricRow, OpenChunk<MetricRow>> = {
    kind: "metrics",
    shared: shared.metrics,
    open: openMetrics,
    rowAt: (chunk, index) => chunk.rowAt(index),
  };
  const given = o.position === "" ? undefined : parsePosition(o.position);

  const stored = watchStored(bus, sandboxId);
  try {
    let sandbox = await findOwn(store, o);
    const position = given ?? { ...(sandbox?.sequences ?? { logs: 0, metrics: 0 }) };
    if (!given) yield { position: formatPosition(position) };
    while (!signal.aborted) {
      sandbox = await findOwn(store, o);
      const until = sandbox?.sequences ?? position;
      if (o.include.logs) {
        for await (const { row, sequence } of rowsBetween(o, logs, position.logs, until.logs)) {
          position.logs = sequence;
          if (row) yield { position: formatPosition(position), log: row };
          if (signal.aborted) return;
        }
      }
      if (o.include.metrics) {
        for await (const { row, sequence } of rowsBetween(o, metrics, position.metrics, until.metrics)) {
          position.metrics = sequence;
          if (row) yield { position: formatPosition(position), metric: row };
          if (signal.aborted) return;
        }
      }
      if (signal.aborted) return;
      // Logs and samples are registered apart, so the end of one says nothing of the other. They were final before their
      // rows were read, so all of these were.
      if (kinds.every((kind) => !o.include[kind] || isKindFinal(sandbox, kind))) return;
      await stored.next(signal);
    }
  } finally {
    stored.stop();
  }
}

/**
 * The rows after a sequence, in the order they were stored, at least up to sequence `until`. Ends when the signal aborts
 * while it waits for a slot.
 */
async function* rowsBetween<R, O extends OpenChunk<unknown>>(
  o: TailOptions,
  kind: RowKind<R, O>,
  from: number,
  until: number,
): AsyncGenerator<{ row: R | undefined; sequence: number }> {
  let bytes = 0;
  let after = from;
  while (after < until) {
    const chunk = await openAfter(o, kind, after, until);
    if (!chunk) return;
    const { reader, firstSequence } = chunk;
    try {
      for (let next = reader.next(); next; next = reader.next()) {
        after = firstSequence + next.index;
        bytes += rowBytes + next.textBytes;
        if (bytes > turnBytes) {
          bytes = 0;
          await nextTurn();
        }
        yield { row: next.row, sequence: after };
      }
    } finally {
      reader.close();
    }
  }
}

/**
 * Opens the first chunk with rows after a sequence, which are there up to `until`. Undefined when there is none, or when
 * the signal aborts.
 */
async function openAfter<R, O extends OpenChunk<unknown>>(
  { store, slots, sandboxId, workspaceId, signal }: TailOptions,
  { kind, shared, open, rowAt }: RowKind<R, O>,
  after: number,
  until: number,
): Promise<{ reader: ChunkReader<R | undefined>; firstSequence: number } | undefined> {
  // Taken before the chunk is read from the store: its body is in memory, too.
  const leaveSlot = await takeSlot(slots, workspaceId, signal).catch(() => undefined);
  if (!leaveSlot) return undefined;
  // By `until` too: what was read before the newest rows were stored lacks them.
  const { value, leave } = shared.use(`${sandboxId} ${after} ${until}`, async () => {
    const [stored] = await store.chunks.listAfter({ sandboxId, kind, sequence: after, limit: 1 });
    return stored && { firstSequence: stored.firstSequence, chunk: await open(stored) };
  });
  const onClosed = () => {
    leave();
    leaveSlot();
  };
  let isOpen = false;
  try {
    const opened = await value;
    if (!opened) return undefined;
    const { firstSequence, chunk } = opened;
    const index = Math.max(0, after + 1 - firstSequence);
    const reader = readChunk(chunk, { index, rowAt, onClosed });
    isOpen = true;
    return { reader, firstSequence };
  } finally {
    if (!isOpen) onClosed();
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
