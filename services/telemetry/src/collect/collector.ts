import { setTimeout as delay } from "node:timers/promises";
import { messageOf } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import { counter, gauge, type Metrics } from "@sandgate/kit/base/metrics";
import { startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { mebibyte } from "@sandgate/kit/base/sizes";
import type { Shards } from "@sandgate/kit/process/shards";
import pLimit from "p-limit";
import type { ChunkKind } from "../domain/chunks.ts";
import { type ContainerReader, type ReaderOptions, startContainerReader } from "./container-reader.ts";
import type { Container, ContainerEvent, ContainerSource } from "./container-source.ts";
import { createMemoryBudget } from "./memory-budget.ts";
import type { IngestClient } from "./source-writer.ts";

const sampleMs = 5_000;
/** The listing finds what the engine's events did not report. */
const listMs = 10_000;
const restartMs = 1_000;
/**
 * How many readers start at once, and the pause before as many more do. Starting hundreds at once, as after a restart,
 * would keep this process and the engine busy for seconds.
 */
const startPace = { atOnce: 8, everyMs: 100 };
/** Batches being stored at once, of all containers together: of lines few, since they may be big. */
const engineBatches = { logs: 2, metrics: 64 };
/** The memory of all lines that wait for the store: two full batches each of hundreds of containers take gigabytes. */
const maxWaitingBytes = 64 * mebibyte;

export interface Collector {
  /** Lists the sandbox's containers now, if the sandbox is this replica's. */
  poll(sandboxId: string): void;
  /** "ok", or why the engine can't be read and what else keeps logs or samples from being read. */
  state(): string;
  /** Stops every reader. What was not stored is read again next time. */
  stop(): Promise<void>;
}

/**
 * Reads every container of this replica's sandboxes, from its start to the end of its log. Two replicas may read the
 * same container for a while: a batch is stored only if it begins where the last one ended.
 */
export function startCollector(o: {
  containers: ContainerSource;
  client: IngestClient;
  shards: Shards;
  /** Batches of each kind that are being stored at once; as many as for an engine unless given. */
  maxBatches?: Record<ChunkKind, number>;
  logger: Logger;
  metrics: Metrics;
}): Collector {
  const { containers, shards, maxBatches = engineBatches, logger } = o;
  const stopping = new AbortController();
  const { signal } = stopping;
  const readers = new Map<string, ContainerReader>();
  /** Why the engine can't be read. */
  let failure: string | undefined;
  // Read once: the clock may be set later, and slots go on as they were.
  const startedMs = Date.now() - performance.now();

  const lines = counter(o.metrics, {
    name: "sandgate_telemetry_collected_lines_total",
    help: "Log lines read from the engine and stored",
  });
  gauge(o.metrics, {
    name: "sandgate_telemetry_followed_containers",
    help: "Containers whose logs are being read",
    collect() {
      this.set([...readers.values()].filter((reader) => reader.hasBegun()).length);
    },
  });

  const readerOptions: ReaderOptions = {
    containers,
    client: o.client,
    ingestLimits: { logs: pLimit(maxBatches.logs), metrics: pLimit(maxBatches.metrics) },
    sampleMs,
    budget: createMemoryBudget(maxWaitingBytes),
    isEngineReadable: () => failure === undefined,
    onLines: (count) => lines.inc(count),
    logger,
    now: () => startedMs + performance.now(),
    signal,
  };

  /** Ensures that the container has a reader. Returns true if the reader is new; it then starts after `beginInMs`. */
  function adopt(container: Container, beginInMs = 0): boolean {
    const known = readers.get(container.id);
    if (!known && (container.state === "created" || signal.aborted || !shards.owns(container.sandboxId))) return false;
    const reader = known ?? startContainerReader(container, readerOptions, beginInMs);
    readers.set(container.id, reader);
    if (container.state === "ended") reader.finish();
    return !known;
  }

  /** The reader stays until it is done, so that no second one is started. */
  function release(reader: ContainerReader): void {
    const { id } = reader.container;
    reader.finish();
    void reader.done.then(() => {
      if (readers.get(id) === reader) readers.delete(id);
    });
  }

  /** Adopts the containers that are listed, all or those of one sandbox, and releases those that are gone. */
  async function list(sandboxId?: string): Promise<void> {
    const before = [...readers.values()].filter(
      ({ container }) => sandboxId === undefined || container.sandboxId === sandboxId,
    );
    const listed = await containers.list({ sandboxId, signal });
    const present = new Set(listed.map(({ id }) => id));
    let adopted = 0;
    for (const container of listed) {
      if (adopt(container, Math.floor(adopted / startPace.atOnce) * startPace.everyMs)) adopted += 1;
    }
    for (const reader of before) if (!present.has(reader.container.id)) release(reader);
  }

  function listSoon(sandboxId?: string): void {
    list(sandboxId).catch((error: unknown) => {
      if (!signal.aborted) logger.debug({ err: error }, "containers can't be listed; the next listing tries again");
    });
  }

  /** Leaves the containers that have become another replica's, and adopts those that have become this one's. */
  function onShardsChange(): void {
    for (const [id, reader] of readers) {
      if (shards.owns(reader.container.sandboxId)) continue;
      reader.leave();
      readers.delete(id);
    }
    listSoon();
  }

  async function onEvent({ containerId, action }: ContainerEvent): Promise<void> {
    const reader = readers.get(containerId);
    if (action === "kill") reader?.sample();
    else if (action === "die") reader?.finish();
    else if (action === "destroy" && reader) release(reader);
    else if (action === "start" && !reader) {
      const container = await containers.inspect(containerId, signal);
      if (container) adopt(container);
    }
  }

  /** Reads the engine's events and lists its containers now and then, until one of the two fails. */
  async function watchEngine(stopped: AbortSignal, markHealthy: () => void): Promise<void> {
    const failed = new AbortController();
    const over = AbortSignal.any([stopped, failed.signal]);
    try {
      await Promise.race([readEvents(over), listPeriodically(over, markHealthy)]);
    } catch (error) {
      failure = messageOf(error);
      throw error;
    } finally {
      failed.abort();
    }
  }

  async function readEvents(over: AbortSignal): Promise<void> {
    for await (const event of containers.watch(over)) {
      onEvent(event).catch((error: unknown) => {
        logger.debug({ err: error, ...event }, "a container can't be inspected; the next listing finds it");
      });
    }
  }

  async function listPeriodically(over: AbortSignal, markHealthy: () => void): Promise<void> {
    for (;;) {
      await list();
      failure = undefined;
      await delay(listMs, undefined, { signal: over });
      // The events were readable for as long, or the race would be over.
      markHealthy();
    }
  }

  shards.onChange(onShardsChange);
  const watching = startPeriodicTask({
    what: "watch the container engine",
    everyMs: restartMs,
    logger,
    work: watchEngine,
  });

  return {
    poll(sandboxId) {
      if (shards.owns(sandboxId)) listSoon(sandboxId);
    },
    state: () => [failure, containers.problem?.()].filter((each) => each !== undefined).join("; ") || "ok",
    async stop() {
      stopping.abort();
      await Promise.all([watching.stop(), ...[...readers.values()].map(({ done }) => done)]);
    },
  };
}
