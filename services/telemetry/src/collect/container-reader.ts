import { setTimeout as delay } from "node:timers/promises";
import { crc32 } from "node:zlib";
import { type Backoff, backoffMs } from "@sandgate/kit/base/backoff";
import type { Logger } from "@sandgate/kit/base/logging";
import { hourMs } from "@sandgate/kit/base/time";
import { createWakeup } from "@sandgate/kit/base/wakeup";
import type { LimitFunction } from "p-limit";
import type { ChunkKind } from "../domain/chunks.ts";
import type { MetricRow } from "../domain/rows.ts";
import { createBatcher } from "./batches.ts";
import type { Container, ContainerSource } from "./container-source.ts";
import type { MemoryBudget } from "./memory-budget.ts";
import { createSampleQueue } from "./sample-queue.ts";
import { CursorMoved, type IngestClient, openSourceWriter, SourceRefused, type SourceWriter } from "./source-writer.ts";

/** How long the engine may still deliver a log after its container has ended, before a complete read takes over. */
const finalReadMs = 2_000;
const retry: Backoff = { firstMs: 100, lastMs: 5_000 };
/** Slots of samples begin at multiples of this. */
const slotStepMs = 250;
/**
 * After so long without a sample an empty batch is stored. A sandbox that is silent for the retention, of a day or more,
 * would otherwise lose its record, and with it the positions in its logs.
 */
const keepMs = hourMs;
/** Failures in a row, over some 5 s, after which a log counts as stuck. */
const stuckAfter = 7;

/** What the readers of one collector share. */
export interface ReaderOptions {
  containers: ContainerSource;
  client: IngestClient;
  /** Limits the batches of lines on their way to the store, and those of samples. */
  ingestLimits: Record<ChunkKind, LimitFunction>;
  /** Milliseconds between two samples of a container. */
  sampleMs: number;
  /** The memory of all containers' lines that wait for the store. */
  budget: MemoryBudget;
  /** Whether the engine as a whole can be read. The collector logs when it can't, so that no reader has to. */
  isEngineReadable(): boolean;
  onLines(count: number): void;
  logger: Logger;
  /** The time in milliseconds, which never goes back. */
  now(): number;
  /** Ends all readers. */
  signal: AbortSignal;
}

/** Brings one container's logs and samples into the store, until it has ended and its log was read to the end. */
export interface ContainerReader {
  readonly container: Container;
  /** False until its time to begin has come. */
  hasBegun(): boolean;
  /** Resolves once logs and samples are both over, however they ended. */
  readonly done: Promise<void>;
  /** The container has ended: nothing but the rest of its log is read. */
  finish(): void;
  /** Takes a sample now. */
  sample(): void;
  /** Reads no further: another replica goes on. */
  leave(): void;
}

interface Reading extends ReaderOptions {
  container: Container;
  /** Aborted when the container has ended. */
  ended: AbortSignal;
}

/** Starts to read after `beginInMs`. */
export function startContainerReader(container: Container, options: ReaderOptions, beginInMs: number): ContainerReader {
  const { client, ingestLimits, logger } = options;
  const ended = new AbortController();
  const left = new AbortController();
  const signal = AbortSignal.any([options.signal, left.signal]);
  const reading: Reading = { ...options, container, ended: ended.signal, signal };
  const demand = createSampleDemand();
  let hasBegun = false;
  const begun = (beginInMs > 0 ? delay(beginInMs, undefined, { signal }) : Promise.resolve()).then(() => {
    hasBegun = true;
  });

  async function collect(kind: ChunkKind, read: (writer: SourceWriter) => Promise<void>): Promise<void> {
    const { id: containerId, sandboxId } = container;
    try {
      await begun;
      const source = { sandboxId, containerId, kind };
      await read(await openSourceWriter({ source, client, limit: ingestLimits[kind], logger, signal }));
    } catch (error) {
      if (signal.aborted) return;
      const details = { err: error, sandboxId, containerId, kind };
      if (error instanceof SourceRefused) logger.info(details, "the store refuses a container's telemetry");
      else logger.error(details, "a container's telemetry can't be collected");
    }
  }

  const logs = collect("logs", (writer) => collectLogs(reading, writer));
  const metrics = collect("metrics", (writer) => collectMetrics(reading, writer, demand));
  return {
    container,
    hasBegun: () => hasBegun,
    done: Promise.all([logs, metrics]).then(() => undefined),
    finish: () => ended.abort(),
    sample: demand.raise,
    leave: () => left.abort(),
  };
}

/** Follows the log, again after each failure, and once the container has ended reads the rest. */
async function collectLogs(reading: Reading, writer: SourceWriter): Promise<void> {
  const { container, containers, ended, logger, signal } = reading;
  let isReported = false;
  for (let attempts = 1; ; attempts++) {
    try {
      const before = writer.cursor;
      if (!ended.aborted) await readLogs(reading, writer, true);
      // Needed even when following ended well: the engine may stop before it has delivered the last lines.
      const now = await containers.inspect(container.id, signal);
      if (now?.state !== "running") {
        await readLogs(reading, writer, false);
        await writer.write(() => ({ toCursor: writer.cursor, final: true }));
        if (!now) {
          logger.warn({ sandboxId: container.sandboxId }, "a container was removed before its log was read to the end");
        }
        return;
      }
      if (writer.cursor !== before) attempts = 1;
      isReported = false;
    } catch (error) {
      if (signal.aborted || error instanceof SourceRefused) throw error;
      const details = { err: error, sandboxId: container.sandboxId, containerId: container.id };
      const isStuck = attempts >= stuckAfter && reading.isEngineReadable() && !(error instanceof CursorMoved);
      if (isStuck && !isReported) logger.warn(details, "a container's log can't be read; will retry");
      else logger.debug(details, "a container's log can't be read; will retry");
      isReported ||= isStuck;
    }
    await delay(backoffMs(attempts, retry), undefined, { signal });
  }
}

/** Stores the log from the writer's cursor to its end or, when following, to the end of the engine's stream. */
async function readLogs(reading: Reading, writer: SourceWriter, follow: boolean): Promise<void> {
  const { container, containers, ended, signal } = reading;
  const stopped = new AbortController();
  const either = AbortSignal.any([signal, stopped.signal]);
  const batcher = createBatcher({
    async send(take) {
      let lines = 0;
      await writer.write(() => {
        const { rows, cursor } = take();
        lines = rows.length;
        return { logs: rows, toCursor: cursor };
      });
      reading.onLines(lines);
    },
    onFailure: (error) => stopped.abort(error),
    budget: reading.budget,
    signal: either,
  });
  let timer: NodeJS.Timeout | undefined;
  const onEnded = () => {
    timer = setTimeout(() => stopped.abort(new FinalReadTimeout()), finalReadMs);
  };
  if (follow) ended.addEventListener("abort", onEnded, { once: true });
  try {
    const options = { follow, signal: either };
    for await (const block of containers.readLogs(container, writer.cursor, options)) await batcher.add(block);
    await batcher.flush();
  } catch (error) {
    signal.throwIfAborted();
    if (stopped.signal.reason instanceof FinalReadTimeout) await batcher.flush();
    else throw stopped.signal.aborted ? stopped.signal.reason : error;
  } finally {
    clearTimeout(timer);
    ended.removeEventListener("abort", onEnded);
    stopped.abort();
    await batcher.close();
  }
}

/** Takes a sample in each slot and on demand, however long those before take to be stored. */
async function collectMetrics(reading: Reading, writer: SourceWriter, demand: SampleDemand): Promise<void> {
  const { container, containers, ended, logger, now, sampleMs, signal } = reading;
  const over = AbortSignal.any([signal, ended]);
  const sample = containers.openSampler(container.id);
  const slots = createSampleSlots(container.id, sampleMs);
  // The reader before this one, in this process or another replica, may have taken this slot's sample.
  let slot = Math.min(slots.at(Number(BigInt(writer.cursor) / 1_000_000n)), slots.at(now()));
  // An engine that measures at times of its own may give one sample twice, also after a restart of this process. One
  // from before the last is of a clock that was set back.
  let lastNs = BigInt(writer.cursor);
  const store = async (take: () => readonly MetricRow[]) => {
    try {
      await writer.write(() => {
        const rows = take();
        return { metrics: rows, toCursor: String(rows.at(-1)?.timeNs ?? writer.cursor) };
      });
    } catch (error) {
      // The writer has the stored cursor now. These samples are another replica's too.
      if (!(error instanceof CursorMoved)) throw error;
    }
  };
  const stored = createSampleQueue(store);
  let keptMs = now();
  for (;;) {
    // In an earlier slot the clock was set back.
    await demand.wait(() => {
      const nowMs = now();
      return slots.at(nowMs) === slot ? slots.startOf(slot + 1) - nowMs : 0;
    }, over);
    if (ended.aborted) break;
    signal.throwIfAborted();
    stored.throwIfFailed();
    slot = slots.at(now());
    try {
      const row = await sample(signal);
      if (row && row.timeNs !== lastNs) {
        lastNs = row.timeNs;
        keptMs = now();
        stored.add(row);
      }
    } catch (error) {
      if (signal.aborted) throw error;
      // A sample that could not be taken can't be made up for.
      logger.debug({ err: error }, "no sample could be taken");
    }
    if (now() - keptMs >= keepMs) {
      keptMs = now();
      await stored.flush();
      await store(() => []);
    }
  }
  signal.throwIfAborted();
  await stored.flush();
  // The engine has no counters of a container that has ended: the last sample is the one of its kill or of the timer.
  await writer.write(() => ({ toCursor: writer.cursor, final: true }));
}

/**
 * The slots of a container's samples, each `everyMs` long, in milliseconds of the system's time. They begin at a moment
 * of the container's own, which its id gives, so samples of many containers that were found at once are spread and
 * replicas agree on the slots; but at whole quarters of a second, so that samples are stored together.
 */
export function createSampleSlots(containerId: string, everyMs: number) {
  const steps = Math.max(1, Math.floor(everyMs / slotStepMs));
  const firstMs = (crc32(containerId) % steps) * slotStepMs;
  return {
    /** Returns the number of the slot at this time. */
    at: (ms: number) => Math.floor((ms - firstMs) / everyMs),
    startOf: (slot: number) => slot * everyMs + firstMs,
  };
}

/** Samples that are wanted before their slot. */
interface SampleDemand {
  raise(): void;
  /** Waits until nothing is left of the time, a sample is wanted or the signal aborts. */
  wait(leftMs: () => number, signal: AbortSignal): Promise<void>;
}

function createSampleDemand(): SampleDemand {
  const wakeup = createWakeup();
  let isWanted = false;
  return {
    raise() {
      isWanted = true;
      wakeup.wake();
    },
    async wait(leftMs, signal) {
      // In a loop, since timers fire some milliseconds early.
      while (!isWanted && !signal.aborted && leftMs() > 0) await wakeup.wait(leftMs(), signal);
      isWanted = false;
    },
  };
}

class FinalReadTimeout extends Error {
  override readonly name = "FinalReadTimeout";
}
