import { setTimeout as delay } from "node:timers/promises";
import { messageOf } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import { counter, gauge, type Metrics } from "@sandgate/kit/base/metrics";
import { startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { createWakeup, type Wakeup } from "@sandgate/kit/base/wakeup";
import type { Shards } from "@sandgate/kit/process/shards";
import type { ChunkKind } from "../store/chunks.ts";
import { createBatcher } from "./batches.ts";
import type { Container, ContainerEvent, ContainerSource } from "./container-source.ts";
import {
  CursorMoved,
  createLimiter,
  type IngestClient,
  openSourceWriter,
  SourceRefused,
  type SourceWriter,
} from "./source-writer.ts";

export interface Collector {
  /** Looks at the sandbox's containers now, if it is this replica's. */
  look(sandboxId: string): void;
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
  /** Both sources are over. */
  done: Promise<void>;
  /** Tells that the container has ended. */
  end(): void;
  /** Takes a sample now. */
  sample(): void;
  /** Reads no further; another replica goes on. */
  leave(): void;
}

/** What the reading of one container goes by. */
interface Following {
  container: Container;
  /** Aborted when the container has ended. */
  ended: AbortSignal;
  /** Aborted when the collector stops or leaves the container to another. */
  signal: AbortSignal;
}

/**
 * Follows every container of this replica's sandboxes, from its start to the end of its log. Two replicas that read one
 * container for a while do no harm: of what they store, each batch has to begin where the one before ended.
 */
export function startCollector(o: {
  source: ContainerSource;
  client: IngestClient;
  shards: Shards;
  logger: Logger;
  metrics: Metrics;
  times?: CollectorTimes;
}): Collector {
  const { client, shards, logger } = o;
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

  function adopt(container: Container): void {
    let one = followed.get(container.id);
    if (!one) {
      if (container.state === "created" || signal.aborted || !shards.owns(container.sandboxId)) return;
      one = follow(container);
      followed.set(container.id, one);
    }
    if (container.state === "ended") one.end();
  }

  function follow(container: Container): Followed {
    const ended = new AbortController();
    const left = new AbortController();
    const following: Following = {
      container,
      ended: ended.signal,
      signal: AbortSignal.any([signal, left.signal]),
    };
    const sampling = createWakeup();
    const guard = async (kind: ChunkKind, work: (writer: SourceWriter) => Promise<void>) => {
      try {
        const source = {
          sandboxId: container.sandboxId,
          workspaceId: container.workspaceId,
          containerId: container.id,
          kind,
        };
        await work(
          await openSourceWriter({ source, client, limiter: ingestLimiter, logger, signal: following.signal }),
        );
      } catch (error) {
        if (following.signal.aborted) return;
        const about = { err: error, sandboxId: container.sandboxId, containerId: container.id, kind };
        if (error instanceof SourceRefused) logger.info(about, "a container's telemetry is not wanted");
        else logger.error(about, "a container's telemetry can't be collected");
      }
    };
    const read = guard("logs", (writer) => followLogs(following, writer));
    const sampled = guard("metrics", (writer) => followMetrics(following, writer, sampling));
    return {
      container,
      done: Promise.all([read, sampled]).then(() => undefined),
      end: () => ended.abort(),
      sample: () => sampling.wake(),
      leave: () => left.abort(),
    };
  }

  async function followLogs(following: Following, writer: SourceWriter): Promise<void> {
    const { container, ended, signal } = following;
    let told = false;
    for (let retryMs = firstRetryMs; ; retryMs = Math.min(retryMs * 2, lastRetryMs)) {
      try {
        const before = writer.cursor;
        if (!ended.aborted) await readInto(following, writer, true);
        // Also when following ended well: the engine may end it before it has given the last lines.
        const now = await o.source.inspect(container.id, signal);
        if (now?.state !== "running") {
          await readInto(following, writer, false);
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
        told = false;
      } catch (error) {
        if (signal.aborted || error instanceof SourceRefused) throw error;
        const about = { err: error, sandboxId: container.sandboxId, containerId: container.id };
        // Told once, and only of this container: an engine that is away is told of by itself, not by each container.
        const stuck = retryMs === lastRetryMs && state === "ok" && !(error instanceof CursorMoved);
        if (stuck && !told) logger.warn(about, "a container's log can't be read; it is tried again");
        else logger.debug(about, "a container's log can't be read on");
        told ||= stuck;
      }
      await delay(retryMs, undefined, { signal });
    }
  }

  /** Reads from the writer's cursor on, until the log's end or, following, the stream's. */
  async function readInto(
    { container, ended, signal }: Following,
    writer: SourceWriter,
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
      const options = { follow: isFollowing, signal: AbortSignal.any([signal, reading.signal]) };
      for await (const block of o.source.readLogs(container, writer.cursor, options)) await batcher.add(block);
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
    { container, ended, signal }: Following,
    writer: SourceWriter,
    wakeup: Wakeup,
  ): Promise<void> {
    const over = AbortSignal.any([signal, ended]);
    while (!ended.aborted) {
      const nextMs = performance.now() + times.sampleMs;
      try {
        const sample = await sampleLimiter(() => o.source.sample(container.id, signal));
        if (sample) await writer.write({ metrics: [sample] }, String(sample.timeNs), false);
      } catch (error) {
        if (signal.aborted || error instanceof SourceRefused) throw error;
        // A moved cursor needs no more than to be known; a sample lost to an engine that can't be read is the past.
        if (!(error instanceof CursorMoved)) logger.debug({ err: error }, "no sample could be taken");
      }
      await wakeup.wait(Math.max(0, nextMs - performance.now()), over);
    }
    signal.throwIfAborted();
    // The engine has no counters of a container that has ended, so the last sample is the one its killing or its timer gave.
    await writer.write({}, writer.cursor, true);
  }

  /** Follows what the listing shows of this replica's, and forgets what was read to its end and is gone. */
  async function list(sandboxId?: string): Promise<void> {
    const before = [...followed].filter(
      ([, { container }]) => sandboxId === undefined || container.sandboxId === sandboxId,
    );
    const listed = await o.source.list({ sandboxId, signal });
    const present = new Set(listed.map(({ id }) => id));
    for (const container of listed) adopt(container);
    for (const [id, one] of before) if (!present.has(id)) forget(id, one);
  }

  function forget(id: string, one: Followed): void {
    one.end();
    void one.done.then(() => {
      if (followed.get(id) === one) followed.delete(id);
    });
  }

  /** Takes up what has become this replica's, and leaves what is another's now. */
  function share(): void {
    for (const [id, one] of followed) {
      if (shards.owns(one.container.sandboxId)) continue;
      one.leave();
      followed.delete(id);
    }
    lookSoon();
  }

  function lookSoon(sandboxId?: string): void {
    list(sandboxId).catch((error: unknown) => {
      if (!signal.aborted) logger.debug({ err: error }, "the engine could not be looked at; the next listing will");
    });
  }

  async function onEvent({ containerId, action }: ContainerEvent): Promise<void> {
    const known = followed.get(containerId);
    if (action === "kill") known?.sample();
    else if (action === "die") known?.end();
    else if (action === "destroy" && known) forget(containerId, known);
    else if (action === "start" && !known) {
      const container = await o.source.inspect(containerId, signal);
      if (container) adopt(container);
    }
  }

  /** Observes the engine and lists its containers now and then, until one of the two fails. */
  async function watchEngine(ending: AbortSignal, markHealthy: () => void): Promise<void> {
    const over = new AbortController();
    const watching = AbortSignal.any([ending, over.signal]);
    try {
      await Promise.race([observe(watching), listOver(watching, markHealthy)]);
    } catch (error) {
      state = messageOf(error);
      throw error;
    } finally {
      over.abort();
    }
  }

  async function observe(ending: AbortSignal): Promise<void> {
    for await (const event of o.source.watch(ending)) {
      onEvent(event).catch((error: unknown) => {
        logger.debug({ err: error, ...event }, "a container could not be looked at; the listing will find it");
      });
    }
  }

  async function listOver(ending: AbortSignal, markHealthy: () => void): Promise<void> {
    for (;;) {
      await list();
      state = "ok";
      await delay(times.listMs, undefined, { signal: ending });
      // Events came all the while, or could have.
      markHealthy();
    }
  }

  shards.onChange(share);
  const watching = startPeriodicTask({ what: "watch the container engine", everyMs: 1_000, logger, work: watchEngine });

  return {
    look(sandboxId) {
      if (shards.owns(sandboxId)) lookSoon(sandboxId);
    },
    state: () => state,
    async stop() {
      stopping.abort();
      await Promise.all([watching.stop(), ...[...followed.values()].map((one) => one.done)]);
    },
  };
}

class LastWordsOver extends Error {}
