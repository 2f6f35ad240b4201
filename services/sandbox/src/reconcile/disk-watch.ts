import type { Logger } from "@sandgate/kit/base/logging";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { monotonicMs } from "@sandgate/kit/base/time";
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
/** All sandboxes are measured when the disk has lost this much, or this fraction of a limit where that is more. */
const leastLoss: Amounts = { bytes: 64 * mebibyte, inodes: 4_096 };
const lossDivisor = 8;

/** Of bytes and of inodes. */
interface Amounts {
  bytes: number;
  inodes: number;
}

const kinds = ["bytes", "inodes"] as const;

export interface DiskWatchOptions {
  /** Undefined: the runtime limits what every sandbox writes. */
  runtimeDisk: Pick<RuntimeDisk, "measure"> | undefined;
  /** MiB and inodes that a sandbox may have on the disk. */
  limits: { mb: number; inodes: number };
  /** What is free on this machine's disks. */
  findFree(): Promise<Amounts>;
  /** Called once for a sandbox that exceeds a limit, whose `failureOf` is known from then on. */
  onFull(sandboxId: string): void;
  logger: Logger;
}

/** Finds sandboxes that exceed a limit of the disk, where the runtime's storage doesn't enforce it. */
export interface DiskWatch {
  /** Measures this running sandbox from now on. */
  add(sandboxId: string): void;
  /**
   * Measures these, which were running at that time of the monotonic clock, from now on. Of the others, only those
   * added since are still measured.
   */
  replace(sandboxIds: ReadonlySet<string>, listedAtMs: number): void;
  /** The failure of a sandbox that exceeds a limit. Undefined: no such failure is known. */
  failureOf(sandboxId: string): Failure | undefined;
  /**
   * Measures all when free bytes or inodes have dropped a lot since all were last measured. Otherwise it makes no call
   * to the engine.
   */
  checkFreeDisk(): Promise<void>;
  stop(): Promise<void>;
}

interface Watched {
  addedAt: number;
  use: Amounts;
  measuredAt: number;
  intervalMs: number;
  timer: NodeJS.Timeout | undefined;
  isMeasuring: boolean;
  /** The limit that it exceeds. */
  full: keyof Amounts | undefined;
  hasFailed: boolean;
}

/**
 * A measurement costs the engine more the more files there are. So a sandbox is measured rarely, more often while it
 * grows or is near its limit, and all of them when free disk space drops quickly.
 */
export function createDiskWatch(o: DiskWatchOptions): DiskWatch {
  const limits: Amounts = { bytes: o.limits.mb * mebibyte, inodes: o.limits.inodes };
  const messages = {
    bytes: `The container wrote more than its disk limit of ${o.limits.mb} MB.`,
    inodes: `The container made more files and folders than its limit of ${o.limits.inodes}.`,
  };
  const limitCalls = pLimit(concurrency);
  const watched = new Map<string, Watched>();
  /** Sandboxes that the storage limits, and whose inodes can't be counted. */
  const limited = new Set<string>();
  const running = new Set<Promise<void>>();
  const stopping = new AbortController();
  const { signal } = stopping;
  /** The most that was free since all were measured. */
  let mostFree: Amounts = { bytes: 0, inodes: 0 };

  function plan(id: string, entry: Watched): void {
    clearTimeout(entry.timer);
    if (!signal.aborted && watched.get(id) === entry && !entry.full) {
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
    let found: DiskUse | undefined;
    try {
      found = await o.runtimeDisk?.measure(id, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (!entry.hasFailed)
        o.logger.warn({ err: error, sandboxId: id }, "what a sandbox has written can't be measured");
      entry.hasFailed = true;
      entry.intervalMs = Math.min(entry.intervalMs * 2, longestMs);
      return;
    }
    entry.hasFailed = false;
    if (found?.bytes === undefined && found?.inodes === undefined) {
      watched.delete(id);
      if (found) limited.add(id);
      return;
    }
    const now = performance.now();
    const use: Amounts = { bytes: 0, inodes: 0, ...found };
    const wantedMs = Math.min(...kinds.map((kind) => wantedMsFor(kind, use, entry, now - entry.measuredAt)));
    entry.intervalMs = Math.max(wantedMs, shortestMs, (now - begunAt) * idleFactor);
    entry.use = use;
    entry.measuredAt = now;
    if (watched.get(id) !== entry) return;
    entry.full = kinds.find((kind) => use[kind] > limits[kind]);
    if (entry.full) o.onFull(id);
  }

  /** When to measure again, as far as this limit goes. */
  function wantedMsFor(kind: keyof Amounts, use: Amounts, last: Watched, sinceMs: number): number {
    const grown = use[kind] - last.use[kind];
    const perMs = grown / Math.max(sinceMs, 1);
    const left = limits[kind] - use[kind];
    const calmMs = Math.min(last.intervalMs * 2, Math.max(longestNearLimitMs, (longestMs * left) / limits[kind]));
    // Half the time that it would take to reach the limit at its current growth.
    return grown > 0 ? Math.min(left / perMs / 2, calmMs) : calmMs;
  }

  function add(id: string): void {
    if (!o.runtimeDisk || signal.aborted || watched.has(id) || limited.has(id)) return;
    const entry: Watched = {
      addedAt: monotonicMs(),
      use: { bytes: 0, inodes: 0 },
      measuredAt: performance.now(),
      intervalMs: shortestMs,
      timer: undefined,
      isMeasuring: false,
      full: undefined,
      hasFailed: false,
    };
    watched.set(id, entry);
    plan(id, entry);
  }

  async function checkFreeDisk(): Promise<void> {
    if (watched.size === 0) return;
    const now = await o.findFree();
    mostFree = { bytes: Math.max(mostFree.bytes, now.bytes), inodes: Math.max(mostFree.inodes, now.inodes) };
    const hasLost = (kind: keyof Amounts) =>
      mostFree[kind] - now[kind] >= Math.max(leastLoss[kind], limits[kind] / lossDivisor);
    if (!kinds.some(hasLost)) return;
    mostFree = now;
    const round = [...watched].filter(([, { full, isMeasuring }]) => !full && !isMeasuring);
    round.sort(([, one], [, other]) => other.use.bytes - one.use.bytes);
    await Promise.all(round.map(([id, entry]) => measureInTurn(id, entry)));
  }

  return {
    add,
    replace(ids, listedAtMs) {
      for (const [id, { addedAt, timer }] of watched) {
        if (ids.has(id) || addedAt >= listedAtMs) continue;
        clearTimeout(timer);
        watched.delete(id);
      }
      for (const id of limited) if (!ids.has(id)) limited.delete(id);
      for (const id of ids) add(id);
    },
    failureOf(id) {
      const full = watched.get(id)?.full;
      return full && { reason: "disk_full", message: messages[full] };
    },
    checkFreeDisk,
    async stop() {
      stopping.abort();
      for (const { timer } of watched.values()) clearTimeout(timer);
      await Promise.all(running);
    },
  };
}
