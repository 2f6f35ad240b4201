import type { Logger } from "@sandgate/kit/base/logging";
import { mebibyte } from "@sandgate/kit/base/sizes";
import pLimit from "p-limit";
import type { DiskUse, RuntimeDisk } from "../runtime/disk.ts";
import type { Failure } from "./failures.ts";

/** How many measurements run at once. Each walks through all files of its sandbox. */
const concurrency = 4;
/** The delay of the first measurement, and the shortest interval between two. */
const shortestMs = 1_000;
/** The longest interval, for a sandbox that doesn't write and for one that is near its limit. */
const longestMs = 60_000;
const longestNearLimitMs = 15_000;
/** A slow measurement is repeated after this many times its own duration. */
const idleFactor = 20;
/** All sandboxes are measured when the disk has lost this much, or this fraction of the limit where that is more. */
const leastLossBytes = 64 * mebibyte;
const lossDivisor = 8;

export interface DiskWatchOptions {
  /** Undefined: the runtime limits what every sandbox writes. */
  runtimeDisk: Pick<RuntimeDisk, "measure"> | undefined;
  /** MiB that a sandbox may have on the disk. */
  limitMb: number;
  /** Bytes free on this machine's disks. */
  findFreeBytes(): Promise<number>;
  /** Called once for a sandbox that has written more than its limit, whose `failureOf` is known from then on. */
  onFull(sandboxId: string): void;
  logger: Logger;
}

/** Finds sandboxes that have written more than their limit, where the runtime's storage doesn't enforce it. */
export interface DiskWatch {
  /** Measures this running sandbox from now on. */
  add(sandboxId: string): void;
  /**
   * Measures these, which were running at that time, from now on. Of the others, only those added since are still
   * measured.
   */
  replace(sandboxIds: ReadonlySet<string>, listedAt: Date): void;
  /** The failure of a sandbox that has written more than its limit. Undefined: no such failure is known. */
  failureOf(sandboxId: string): Failure | undefined;
  /**
   * Measures all when free disk space has dropped a lot since all were last measured. Otherwise it makes no call to the
   * engine.
   */
  checkFreeDisk(): Promise<void>;
  stop(): Promise<void>;
}

interface Watched {
  addedAt: number;
  bytes: number;
  measuredAt: number;
  intervalMs: number;
  timer: NodeJS.Timeout | undefined;
  isMeasuring: boolean;
  isFull: boolean;
  hasFailed: boolean;
}

/**
 * A measurement costs the engine more the more files there are. So a sandbox is measured rarely, more often while it
 * grows or is near its limit, and all of them when free disk space drops quickly.
 */
export function createDiskWatch(o: DiskWatchOptions): DiskWatch {
  const limitBytes = o.limitMb * mebibyte;
  const limitCalls = pLimit(concurrency);
  const watched = new Map<string, Watched>();
  /** Sandboxes that the storage limits. */
  const limited = new Set<string>();
  const running = new Set<Promise<void>>();
  const stopping = new AbortController();
  const { signal } = stopping;
  /** The most free disk space since all were measured. */
  let freeBytes = 0;

  function plan(id: string, entry: Watched): void {
    clearTimeout(entry.timer);
    if (!signal.aborted && watched.get(id) === entry && !entry.isFull) {
      entry.timer = setTimeout(() => measureInTurn(id, entry), entry.intervalMs).unref();
    }
  }

  function measureInTurn(id: string, entry: Watched): Promise<void> {
    clearTimeout(entry.timer);
    entry.isMeasuring = true;
    const work = limitCalls(() => measure(id, entry)).finally(() => {
      running.delete(work);
      entry.isMeasuring = false;
      plan(id, entry);
    });
    running.add(work);
    return work;
  }

  async function measure(id: string, entry: Watched): Promise<void> {
    if (signal.aborted || watched.get(id) !== entry) return;
    const begunAt = performance.now();
    let use: DiskUse;
    try {
      use = await o.runtimeDisk?.measure(id, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (!entry.hasFailed)
        o.logger.warn({ err: error, sandboxId: id }, "what a sandbox has written can't be measured");
      entry.hasFailed = true;
      entry.intervalMs = Math.min(entry.intervalMs * 2, longestMs);
      return;
    }
    entry.hasFailed = false;
    if (typeof use !== "number") {
      watched.delete(id);
      if (use === "limited") limited.add(id);
      return;
    }
    const now = performance.now();
    const grown = use - entry.bytes;
    const perMs = grown / Math.max(now - entry.measuredAt, 1);
    const left = limitBytes - use;
    const calmMs = Math.min(entry.intervalMs * 2, Math.max(longestNearLimitMs, (longestMs * left) / limitBytes));
    // Half the time that it would take to reach the limit at its current growth.
    const wantedMs = grown > 0 ? Math.min(left / perMs / 2, calmMs) : calmMs;
    entry.intervalMs = Math.max(wantedMs, shortestMs, (now - begunAt) * idleFactor);
    entry.bytes = use;
    entry.measuredAt = now;
    if (left >= 0 || watched.get(id) !== entry) return;
    entry.isFull = true;
    o.onFull(id);
  }

  function add(id: string): void {
    if (!o.runtimeDisk || signal.aborted || watched.has(id) || limited.has(id)) return;
    const entry: Watched = {
      addedAt: Date.now(),
      bytes: 0,
      measuredAt: performance.now(),
      intervalMs: shortestMs,
      timer: undefined,
      isMeasuring: false,
      isFull: false,
      hasFailed: false,
    };
    watched.set(id, entry);
    plan(id, entry);
  }

  async function checkFreeDisk(): Promise<void> {
    if (watched.size === 0) return;
    const now = await o.findFreeBytes();
    freeBytes = Math.max(freeBytes, now);
    if (freeBytes - now < Math.max(leastLossBytes, limitBytes / lossDivisor)) return;
    freeBytes = now;
    const round = [...watched].filter(([, { isFull, isMeasuring }]) => !isFull && !isMeasuring);
    round.sort(([, one], [, other]) => other.bytes - one.bytes);
    await Promise.all(round.map(([id, entry]) => measureInTurn(id, entry)));
  }

  return {
    add,
    replace(ids, listedAt) {
      for (const [id, { addedAt, timer }] of watched) {
        if (ids.has(id) || addedAt >= listedAt.getTime()) continue;
        clearTimeout(timer);
        watched.delete(id);
      }
      for (const id of limited) if (!ids.has(id)) limited.delete(id);
      for (const id of ids) add(id);
    },
    failureOf: (id) =>
      watched.get(id)?.isFull
        ? { reason: "disk_full", message: `The container wrote more than its disk limit of ${o.limitMb} MB.` }
        : undefined,
    checkFreeDisk,
    async stop() {
      stopping.abort();
      for (const { timer } of watched.values()) clearTimeout(timer);
      await Promise.all(running);
    },
  };
}
