import { withoutUndefined } from "./commands.ts";
import { ConnectionFailed } from "./errors.ts";
import { followEvents } from "./event-stream.ts";
import { type CallOptions, fillPath, type Http } from "./http.ts";
import { toCamelCase } from "./names.ts";
import type { LogEntry, MetricPoint, SandboxState } from "./records.ts";
import { delay, steadyMs, withResolvers } from "./time.ts";

export type Moment = Date | string;

interface WindowOptions extends CallOptions {
  /** Inclusive. One hour ago by default; with `follow` all logs, and metrics from now on. */
  since?: Moment | undefined;
  /** Exclusive; now by default. */
  until?: Moment | undefined;
  /** The newest rows of the window; all by default. With `follow`, only rows that are there at the start count. */
  limit?: number | undefined;
  /** Goes on with what comes, until the sandbox has ended. */
  follow?: boolean | undefined;
}

export interface LogOptions extends WindowOptions {
  stream?: "stdout" | "stderr" | undefined;
}

export type MetricOptions = WindowOptions;

/** What a sandbox's rows are read by. */
export interface Source {
  http: Http;
  sandboxId: string;
  /** When the sandbox was made. */
  createdAt: string;
  /** How it is now, by asking. */
  state(signal: AbortSignal | undefined): Promise<SandboxState>;
}

const pageSize = 10_000;
/**
 * An answer whose lines have no more characters lacks none of its rows: the API leaves rows out above 31 MiB, and a
 * character is six bytes at most.
 */
const completeCharacters = 4 * 1024 * 1024;
/** How often it is asked whether the sandbox has ended, while nothing comes. */
const quietMs = 2_000;
const maxFailures = 3;

export function readLogs(source: Source, o: LogOptions = {}): AsyncGenerator<LogEntry, void> {
  const kind: Kind<LogEntry> = { include: "logs", stream: o.stream, rowsOf: ({ logs }) => logs };
  return o.follow
    ? followRows(source, kind, { ...o, since: o.since ?? source.createdAt })
    : readWindow(source, kind, o);
}

export function readMetrics(source: Source, o: MetricOptions = {}): AsyncGenerator<MetricPoint, void> {
  const kind: Kind<MetricPoint> = { include: "metrics", rowsOf: ({ metrics }) => metrics };
  return o.follow ? followRows(source, kind, o) : readWindow(source, kind, o);
}

interface Kind<Row> {
  include: "logs" | "metrics";
  stream?: "stdout" | "stderr" | undefined;
  rowsOf(answer: { logs: LogEntry[]; metrics: MetricPoint[] }): readonly (Row & { timestamp: string })[];
}

/** Rows of the window, oldest first. The API gives the newest of a window, so pages are read backwards. */
async function* readWindow<Row extends { timestamp: string; log?: string }>(
  { http, sandboxId }: Source,
  kind: Kind<Row>,
  o: WindowOptions,
): AsyncGenerator<Row, void> {
  const { since, signal, timeoutMs } = o;
  const pages: Row[][] = [];
  let until = toIso(o.until);
  let left = o.limit ?? Number.POSITIVE_INFINITY;
  for (let isFull = true; isFull; ) {
    const limit = Math.min(left, pageSize);
    const answer = await http.call("GET", "/sandbox/monitoring/{sandbox_id}", {
      params: { sandbox_id: sandboxId },
      query: withoutUndefined({
        since: toIso(since),
        until,
        limit,
        stream: kind.stream,
        include: kind.include,
      }),
      signal,
      timeoutMs,
    });
    const rows: Row[] = [...kind.rowsOf(answer)];
    isFull = rows.length < left && (rows.length === limit || mayLackRows(rows));
    if (isFull) {
      // Others with the oldest one's time may be on the page before, which ends before this time.
      const oldest = rows[0]?.timestamp;
      const cut = rows.findIndex(({ timestamp }) => timestamp !== oldest);
      if (cut > 0) rows.splice(0, cut);
      until = cut > 0 ? rows[0]?.timestamp : oldest;
      left -= rows.length;
    }
    pages.push(rows);
  }
  for (const page of pages.reverse()) yield* page;
}

/** Whether the API may have left rows out of an answer because their lines are long. */
function mayLackRows(rows: readonly { log?: string }[]): boolean {
  return rows.reduce((sum, { log = "" }) => sum + log.length, 0) > completeCharacters;
}

/**
 * Rows from `since` on, and then those that come, each once: the stream is open before the rows before it are read, and
 * goes on by its last id.
 */
async function* followRows<Row extends { timestamp: string; log?: string }>(
  source: Source,
  kind: Kind<Row>,
  o: WindowOptions,
): AsyncGenerator<Row, void> {
  const seen = createSeen();
  const end = watchForEnd(source, o.signal);
  let since = toIso(o.since);
  let { limit } = o;
  async function* readHistory(signal: AbortSignal | undefined): AsyncGenerator<Row, void> {
    seen.startOver();
    for await (const row of readWindow(source, kind, { ...o, since, until: undefined, limit, signal })) {
      since = row.timestamp;
      if (seen.add(row)) yield row;
    }
    seen.startOver();
  }
  try {
    let failures = 0;
    for (let state = await source.state(end.signal); !isOver(state); state = await source.state(end.signal)) {
      // The stream of one that is about to end is over, its output isn't.
      if (state === "stopping") {
        await delay(quietMs, end.signal);
        continue;
      }
      if (failures > maxFailures) throw new ConnectionFailed("A stream broke off again and again.");
      failures += 1;
      const openedMs = performance.now();
      const opened = withResolvers();
      const live = streamRows<Row>(source, kind, { signal: end.signal, onOpen: opened.resolve });
      let next = live.next();
      await Promise.race([opened.promise, next]);
      if (since !== undefined) yield* readHistory(end.signal);
      since ??= new Date().toISOString();
      // What comes later is read whole.
      limit = undefined;
      for (let row = await next; !row.done; row = await next) {
        next = live.next();
        // It may fail while the row is with the caller.
        next.catch(() => {});
        failures = 0;
        end.noteRow();
        since = row.value.timestamp;
        if (seen.add(row.value)) yield row.value;
      }
      if (performance.now() - openedMs > steadyMs) failures = 0;
    }
  } catch (error) {
    if (!end.hasEnded) throw error;
  } finally {
    end.stop();
  }
  // The last rows may come late.
  if (!end.hasEnded) await delay(quietMs, o.signal);
  yield* readHistory(o.signal);
}

/** A signal that aborts with another, or once the sandbox has ended and nothing has come for a while. */
function watchForEnd(source: Source, signal: AbortSignal | undefined) {
  const controller = new AbortController();
  const either = signal ? AbortSignal.any([signal, controller.signal]) : controller.signal;
  let rows = 0;
  let hasEnded = false;
  async function watch(): Promise<void> {
    for (let hasStopped = false; ; ) {
      const before = rows;
      await delay(quietMs, either);
      if (rows !== before) continue;
      if (hasStopped) break;
      hasStopped = isOver(await source.state(either));
    }
    hasEnded = true;
    controller.abort();
  }
  // What fails here fails the stream too.
  watch().catch(() => {});
  return {
    signal: either,
    get hasEnded() {
      return hasEnded;
    },
    noteRow: () => {
      rows += 1;
    },
    stop: () => controller.abort(),
  };
}

function isOver(state: SandboxState): boolean {
  return state === "stopped" || state === "failed";
}

async function* streamRows<Row>(
  { http, sandboxId, state }: Source,
  { include, stream }: Kind<Row>,
  { signal, onOpen }: { signal: AbortSignal | undefined; onOpen(): void },
): AsyncGenerator<Row, void> {
  const events = followEvents({
    open: async (lastId, connection) => {
      const response = await http.send({
        method: "GET",
        path: fillPath("/sandbox/monitoring/{sandbox_id}/stream", { sandbox_id: sandboxId }),
        query: { include, stream },
        headers: { accept: "text/event-stream", ...(lastId !== undefined && { "last-event-id": lastId }) },
        signal: connection,
      });
      onOpen();
      return response;
    },
    isLast: () => false,
    // Without an id there is a gap, which only reading closes.
    mayReopen: async (lastId) => lastId !== undefined && (await state(signal)) === "ready",
    signal,
  });
  for await (const { data } of events) yield toCamelCase<Row>(JSON.parse(data));
}

/** Tells rows apart that come as history and live too. Equal rows count by number. */
function createSeen() {
  const most = 2 * pageSize;
  const handedOn = new Map<string, number>();
  let counts = new Map<string, number>();
  return {
    /** The rows that come now begin anew. */
    startOver() {
      counts = new Map();
    },
    /** Whether it is new. */
    add(row: { timestamp: string }): boolean {
      const key = JSON.stringify(row);
      const count = (counts.get(key) ?? 0) + 1;
      counts.set(key, count);
      if (count <= (handedOn.get(key) ?? 0)) return false;
      handedOn.set(key, count);
      for (const map of [counts, handedOn]) {
        for (const oldest of map.keys()) {
          if (map.size <= most) break;
          map.delete(oldest);
        }
      }
      return true;
    },
  };
}

function toIso(moment: Moment | undefined): string | undefined {
  return moment instanceof Date ? moment.toISOString() : moment;
}
