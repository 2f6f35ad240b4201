import { newId } from "@sandgate/kit/base/ids";
import { afterEach, beforeEach, expect } from "vitest";
import type { Source } from "../domain/batches.ts";
import { encodeLogs } from "../domain/chunks.ts";
import { fromMillis, type LogRow, type MetricRow, type Numbered } from "../domain/rows.ts";
import { queryLogs, queryMetrics } from "../query/queries.ts";
import type { Appended } from "./sources.ts";
import type { TelemetryStore } from "./store.ts";

export const startMs = Date.UTC(2026, 0, 1);
export const unlimited = { sandboxBytes: 0, workspaceBytes: 0 };

/** Everything, for a caller who never aborts. */
const always = {
  window: { sinceNs: 0n, untilNs: fromMillis(startMs) * 2n },
  size: { rows: 100_000, bytes: Number.POSITIVE_INFINITY, chunks: Number.POSITIVE_INFINITY },
  signal: new AbortController().signal,
};

export function lineAt(ms: number, log: string, stream: LogRow["stream"] = "stdout"): LogRow {
  return { timeNs: fromMillis(startMs + ms), stream, log };
}

/** A text whose line has a chunk to itself, and what that line counts for. */
export const longText = (text: string) => text + "x".repeat(65_536 - text.length);
export const longBytes = 65_536 + 13;

/** An empty store for each test, and what its suites do with one. */
export interface StoreFixture {
  readonly store: TelemetryStore;
  /** The logs of one container of a new sandbox. */
  readonly source: Source;
  /** Appends a batch, of `source` unless another is given. */
  append(
    fromCursor: string,
    toCursor: string,
    rows: readonly LogRow[],
    o?: { source?: Source; final?: boolean; quota?: number; workspaceQuota?: number; now?: number },
  ): Promise<Appended>;
  /** Appends lines in chunks of their own, each a millisecond after the last. Returns how many were removed. */
  appendLong(o: {
    source: Source;
    from: number;
    count: number;
    final?: boolean;
    workspaceQuota?: number;
  }): Promise<number>;
  /** The lines that are stored of a sandbox, of `source`'s unless another is given. */
  linesOf(sandboxId?: string): Promise<string[]>;
  /** The lines of appendLong that are stored, by their numbers. */
  numbersOf(source: Source): Promise<number[]>;
  /** The samples of `source`'s sandbox. */
  samplesOf(): Promise<Numbered<MetricRow>[]>;
  /** The logs of a new sandbox of the workspace. */
  sandboxOf(workspaceId: string): Source;
}

export function useStore(open: () => Promise<TelemetryStore>): StoreFixture {
  let store: TelemetryStore;
  let source: Source;
  beforeEach(async () => {
    store = await open();
    source = { sandboxId: newId(), workspaceId: newId(), containerId: "c1", kind: "logs" };
  });
  afterEach(() => store.close());

  const fixture: StoreFixture = {
    get store() {
      return store;
    },
    get source() {
      return source;
    },
    async append(fromCursor, toCursor, rows, o = {}) {
      const chunk = rows.length > 0 ? await encodeLogs(rows) : undefined;
      return store.sources.append(
        { source: o.source ?? source, fromCursor, toCursor, chunk, final: o.final ?? false },
        {
          quotas: { sandboxBytes: o.quota ?? 0, workspaceBytes: o.workspaceQuota ?? 0 },
          now: new Date(o.now ?? startMs),
        },
      );
    },
    async appendLong(o) {
      let removed = 0;
      for (let i = 0; i < o.count; i += 1) {
        const at = o.from + i;
        const { accepted, removedLines } = await fixture.append(
          i ? `${at - 1}` : "",
          `${at}`,
          [lineAt(at, longText(`${at}`))],
          {
            source: o.source,
            final: (o.final ?? false) && i === o.count - 1,
            workspaceQuota: o.workspaceQuota ?? 0,
            now: startMs + at,
          },
        );
        expect(accepted).toBe(true);
        removed += removedLines.workspace;
      }
      return removed;
    },
    async linesOf(sandboxId = source.sandboxId) {
      const { rows } = await queryLogs(store.chunks, { ...always, sandboxId, stream: undefined });
      return rows.map((row) => row.log);
    },
    numbersOf: async ({ sandboxId }) => (await fixture.linesOf(sandboxId)).map((line) => Number.parseInt(line, 10)),
    samplesOf: async () => (await queryMetrics(store.chunks, { ...always, sandboxId: source.sandboxId })).rows,
    sandboxOf: (workspaceId) => ({ ...source, workspaceId, sandboxId: newId() }),
  };
  return fixture;
}
