import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "@sandgate/kit/logging";
import { counter, gauge, type Metrics } from "@sandgate/kit/metrics";
import { repeat } from "@sandgate/kit/repeat";
import { createBatcher } from "./batches.ts";
import type { ChunkKind } from "./chunks.ts";
import type { Container, Engine } from "./engine.ts";
import {
  CursorMoved,
  createLimiter,
  type IngestClient,
  openSourceWriter,
  SourceRefused,
  type SourceWriter,
} from "./source-writer.ts";

export interface Collector {
  /**
   * Resolves once everything that the sandbox's containers wrote is stored, which is at once when none of them has run.
   * Throws when the engine can't be asked, or the signal's reason.
   */
  drained(sandboxId: string, signal: AbortSignal): Promise<void>;
  /** "ok" until the engine can't be read, then why. */
  state(): string;
  /** Ends all following; what was not stored is read again next time. */
  stop(): Promise<void>;
}

export interface CollectorTimes {
  /** Between two samples of a container. */
  sampleMs: number;
  /** Between two listings, which find what the engine's events did not tell. */
  listMs: number;
}

const defaultTimes: CollectorTimes = { sampleMs: 5_000, listMs: 10_000 };
/** Batches on their way at once, whichever containers they are of. */
const batchesInFlight = 2;
const samplesInFlight = 4;
/** How long the engine may still deliver a log after its container has ended, before a complete reading takes over. */
const lastWordsMs = 2_000;
const firstRetryMs = 100;
const lastRetryMs = 5_000;

/** A container that is being read, or was read to its end. */
interface Followed {
  container: Container;
  /** Settles once the log is stored to its end, or will never be. */
  drained: Promise<void>;
  /** Both sources are over. */
  done: Promise<void>;
  /** Tells that the container has ended. */
  end(): void;
  /** Takes a sample now. */
  sample(): void;
}

/** Follows every container of the installation, from its start to the end of its log. */
export function startCollector(o: {
  engine: Engine;
  client: IngestClient;
  logger: Logger;
  metrics: Metrics;
  times?: CollectorTimes;
}): Collector {
  const { engine, client, logger } = o;
  const times = o.times ?? defaultTimes;
  const stopping = new AbortController();
  const { signal } = stopping;
  const ingestLimiter = createLimiter(batchesInFlight);
  const sampleLimiter = createLimiter(samplesInFlight);
  const followed = new Map<string, Followed>();
  let state = "ok";

  const lines = counter(o.metrics, {
    name: "sandgate_telemetry_collected_lines_total",
    help: "Log lines read from the engine and stored",
  });
  gauge(o.metrics, {
    name: "sandgate_telemetry_followed_containers",
    help: "Containers whose logs are being read",
    collect() {
      this.set(followed.size);
    },
  });

  function adopt(container: Container): Followed | undefined {
    const known = followed.get(container.id);
    if (known || container.state === "created" || signal.aborted) return known;
    const one = follow(container);
    followed.set(container.id, one);
    if (container.state === "ended") one.end();
    return one;
  }

  function follow(container: Container): Followed {
    const ended = new AbortController();
    let sampleNow = (): void => undefined;
    const openSource = (kind: ChunkKind) =>
      openSourceWriter({
        source: { sandboxId: container.sandboxId, workspaceId: container.workspaceId, containerId: container.id, kind },
        client,
        limiter: ingestLimiter,
        logger,
        signal,
      });
    const guard = async (kind: ChunkKind, work: (writer: SourceWriter) => Promise<void>) => {
      try {
        await work(await openSource(kind));
      } catch (error) {
        if (signal.aborted) return;
        const about = { err: error, sandboxId: container.sandboxId, containerId: container.id, kind };
        if (error instanceof SourceRefused) logger.info(about, "a container's telemetry is not wanted");
        else logger.error(about, "a container's telemetry can't be collected");
      }
    };
    const drained = guard("logs", (writer) => followLogs(container, writer, ended.signal));
    const sampled = guard("metrics", (writer) =>
      followMetrics(container, writer, ended.signal, (wake) => {
        sampleNow = wake;
      }),
    );
    return {
      container,
      drained,
      done: Promise.all([drained, sampled]).then(() => undefined),
      end: () => ended.abort(),
      sample: () => sampleNow(),
    };
  }

  async function followLogs(container: Container, writer: SourceWriter, ended: AbortSignal): Promise<void> {
    for (let retryMs = firstRetryMs; ; retryMs = Math.min(retryMs * 2, lastRetryMs)) {
      try {
        const before = writer.cursor;
        if (!ended.aborted) await readInto(container, writer, ended, true);
        // Also when following ended well: the engine may end it before it has given the last lines.
        const now = await engine.inspect(container.id);
        if (now?.state !== "running") {
          await readInto(container, writer, ended, false);
          await writer.write({}, writer.cursor, true);
          if (!now) {
            logger.warn(
              { sandboxId: container.sandboxId },
              "a container was removed before its log was read to the end",
            );
          }
          return;
        }
        if (writer.cursor !== before) retryMs = firstRetryMs;
      } catch (error) {
        if (signal.aborted || error instanceof SourceRefused) throw error;
        const about = { err: error, sandboxId: container.sandboxId };
        if (!(error instanceof CursorMoved)) logger.warn(about, "a container's log can't be read; it is tried again");
      }
      await delay(retryMs, undefined, { signal });
    }
  }

  /** Reads from the writer's cursor on, until the log's end or, following, the stream's. */
  async function readInto(
    container: Container,
    writer: SourceWriter,
    ended: AbortSignal,
    isFollowing: boolean,
  ): Promise<void> {
    const reading = new AbortController();
    const batcher = createBatcher({
      async send(rows, cursor) {
        await writer.write({ logs: rows }, cursor, false);
        lines.inc(rows.length);
      },
      failed: (error) => reading.abort(error),
    });
    let timer: NodeJS.Timeout | undefined;
    const onEnded = () => {
      timer = setTimeout(() => reading.abort(new LastWordsOver()), lastWordsMs);
    };
    if (isFollowing) ended.addEventListener("abort", onEnded, { once: true });
    try {
      const o = { follow: isFollowing, signal: AbortSignal.any([signal, reading.signal]) };
      for await (const block of engine.readLogs(container, writer.cursor, o)) await batcher.add(block);
      await batcher.flush();
    } catch (error) {
      signal.throwIfAborted();
      if (reading.signal.reason instanceof LastWordsOver) await batcher.flush();
      else throw reading.signal.aborted ? reading.signal.reason : error;
    } finally {
      clearTimeout(timer);
      ended.removeEventListener("abort", onEnded);
      reading.abort();
    }
  }

  async function followMetrics(
    container: Container,
    writer: SourceWriter,
    ended: AbortSignal,
    onDemand: (wake: () => void) => void,
  ): Promise<void> {
    let wake = (): void => undefined;
    onDemand(() => wake());
    while (!ended.aborted) {
      const nextMs = performance.now() + times.sampleMs;
      const woken = new Promise<void>((resolve) => {
        wake = resolve;
      });
      try {
        const sample = await sampleLimiter(() => engine.sample(container.id, signal));
        if (sample) await writer.write({ metrics: [sample] }, String(sample.timeNs), false);
      } catch (error) {
        if (signal.aborted || error instanceof SourceRefused) throw error;
        // A moved cursor needs no more than to be known; a sample lost to an engine that can't be read is the past.
        if (!(error instanceof CursorMoved)) logger.debug({ err: error }, "no sample could be taken");
      }
      await sleep(Math.max(0, nextMs - performance.now()), [signal, ended], woken);
    }
    signal.throwIfAborted();
    // The engine has no counters of a container that has ended, so the last sample is the one its killing or its timer gave.
    await writer.write({}, writer.cursor, true);
  }

  /** Follows what the listing shows, and forgets what was read to its end and is gone. */
  async function list(): Promise<void> {
    const listed = await engine.list();
    state = "ok";
    const present = new Map(listed.map((container) => [container.id, container]));
    for (const container of listed) {
      const known = adopt(container);
      if (container.state === "ended") known?.end();
    }
    for (const [id, one] of followed) if (!present.has(id)) forget(id, one);
  }

  function forget(id: string, one: Followed): void {
    one.end();
    void one.done.then(() => followed.delete(id));
  }

  async function onEvent(containerId: string, action: "start" | "kill" | "die" | "destroy"): Promise<void> {
    const known = followed.get(containerId);
    if (action === "kill") known?.sample();
    else if (action === "die") known?.end();
    else if (action === "destroy" && known) forget(containerId, known);
    else if (action === "start" && !known) {
      const container = await engine.inspect(containerId);
      if (container) adopt(container);
    }
  }

  const listing = repeat({
    what: "list the engine's containers",
    everyMs: times.listMs,
    logger,
    async work() {
      await list().catch((error: unknown) => {
        state = error instanceof Error ? error.message : String(error);
        throw error;
      });
    },
  });
  const observing = repeat({
    what: "observe the engine's containers",
    everyMs: 1_000,
    logger,
    async work(ending) {
      for await (const { containerId, action } of engine.observe(ending)) {
        onEvent(containerId, action).catch((error: unknown) => {
          logger.debug({ err: error, containerId }, "a container could not be looked at; the listing will find it");
        });
      }
    },
  });

  return {
    async drained(sandboxId, caller) {
      const containers = await engine.list(sandboxId);
      const ours = containers.flatMap((container) => adopt(container) ?? []);
      for (const one of followed.values()) {
        if (one.container.sandboxId === sandboxId && !ours.includes(one)) ours.push(one);
      }
      for (const container of containers) {
        if (container.state === "ended") followed.get(container.id)?.end();
      }
      const aborted = new Promise<never>((_, reject) => {
        caller.addEventListener("abort", () => reject(caller.reason), { once: true });
        if (caller.aborted) reject(caller.reason);
      });
      await Promise.race([Promise.all(ours.map((one) => one.drained)), aborted]);
      // Stopping ends the reading too, short of the end.
      signal.throwIfAborted();
    },
    state: () => state,
    async stop() {
      stopping.abort();
      await Promise.all([listing.stop(), observing.stop(), ...[...followed.values()].map((one) => one.done)]);
    },
  };
}

class LastWordsOver extends Error {}

/** Waits for the time, one of the signals, or `woken`. */
async function sleep(ms: number, signals: readonly AbortSignal[], woken: Promise<void>): Promise<void> {
  const over = new AbortController();
  const timer = delay(ms, undefined, { signal: AbortSignal.any([...signals, over.signal]) }).catch(() => undefined);
  await Promise.race([timer, woken]);
  over.abort();
}
