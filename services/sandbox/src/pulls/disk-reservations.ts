import { untilAborted } from "@sandgate/kit/base/abort";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { mebibyte } from "@sandgate/kit/base/sizes";

/** For how long a measurement counts, less what was reserved since: others write to the disk too. */
const maxAgeMs = 1_000;
/** How much of the room for pulls those of one workspace may have. */
const workspaceShare = 1 / 2;
/** A pull is slow when fewer bytes were reserved for it in its last whole window, and since. */
const slow = { windowMs: 15_000, bytes: 15 * mebibyte };

/** The disk space of one pull. */
export interface DiskReservation {
  /** Throws RUNTIME_UNAVAILABLE unless so many bytes could be had now. Reserves none. */
  check(bytes: number): Promise<void>;
  /**
   * Reserves space for bytes that are written now, and for bytes that the engine is going to write. Where there isn't
   * as much, slow pulls are stopped first. Throws RUNTIME_UNAVAILABLE when that isn't enough, or would be more than the
   * workspace's share, and the reason of the pull's signal once that has aborted.
   */
  reserve(writtenBytes: number, plannedBytes: number): Promise<void>;
  /** No registry is waited for any more, or again: only a pull that waits for one can be slow. */
  setWaiting(isWaiting: boolean): void;
  /** Gives all back, once what was written is removed. */
  release(): void;
}

interface Pull {
  readonly workspaceId: string;
  writtenBytes: number;
  plannedBytes: number;
  isWaiting: boolean;
  /** The current window, and the bytes that were reserved in it and in the one before. */
  window: { startedAt: number; bytes: number; bytesBefore: number };
  readonly signal: AbortSignal;
  stop(): void;
  readonly released: Promise<void>;
}

/**
 * Shares the disk among pulls. Space is reserved as bytes come, not by the sizes in a manifest: a registry that gives
 * out nothing could keep all others from the disk. For one that gives out little, a pull holds its space only until
 * another pull needs it.
 *
 * @param measureAvailable bytes that are free, besides what is kept for others
 * @returns what opens a workspace's reservation; `stop` is called when its space is needed, and ends its pull, so it
 * aborts `signal`, the pull's own
 */
export function createDiskReservations(
  measureAvailable: () => Promise<number>,
  now: () => number = () => performance.now(),
): (workspaceId: string, signal: AbortSignal, stop: () => void) => DiskReservation {
  const pulls = new Set<Pull>();
  /** What is left of the last measurement. */
  let left = 0;
  let measuredAt = Number.NEGATIVE_INFINITY;
  let measuring: Promise<void> | undefined;

  function measure(): Promise<void> {
    measuring ??= measureAvailable()
      .then((bytes) => {
        left = bytes - sum(pulls, ({ plannedBytes }) => plannedBytes);
        measuredAt = now();
      })
      .finally(() => {
        measuring = undefined;
      });
    return measuring;
  }

  async function measureUnless(isEnough: () => boolean): Promise<void> {
    if (!isEnough() || now() - measuredAt > maxAgeMs) await measure();
  }

  /** Begins the window anew once it is over. */
  function turnWindow({ window }: Pull): void {
    const windows = Math.floor((now() - window.startedAt) / slow.windowMs);
    if (windows === 0) return;
    window.bytesBefore = windows === 1 ? window.bytes : 0;
    window.bytes = 0;
    window.startedAt += windows * slow.windowMs;
  }

  /** Other pulls that are slow: those that are ending already, then the largest. */
  function slowBeside(own: Pull): Pull[] {
    const others = [...pulls].filter((each) => each !== own && each.isWaiting);
    for (const each of others) turnWindow(each);
    return others
      .filter(({ window }) => window.bytes < slow.bytes && window.bytesBefore < slow.bytes)
      .sort((a, b) => Number(b.signal.aborted) - Number(a.signal.aborted) || heldBytes(b) - heldBytes(a));
  }

  function requireShare({ workspaceId }: Pull, bytes: number): void {
    const ofWorkspace = [...pulls].filter((each) => each.workspaceId === workspaceId);
    const room = left + sum(pulls, heldBytes);
    if (sum(ofWorkspace, heldBytes) + bytes > room * workspaceShare) throw notEnough();
  }

  /** Stops slow pulls until there is as much, if that helps, and waits until they are over. */
  async function takeBack(own: Pull, bytes: number): Promise<void> {
    const others = slowBeside(own);
    if (left + sum(others, heldBytes) < bytes) return;
    const stopped: Pull[] = [];
    for (const each of others) {
      if (left + sum(stopped, heldBytes) >= bytes) break;
      stopped.push(each);
      each.stop();
    }
    // A stopped pull must end, also while it waits: for others that wait for it, perhaps.
    await untilAborted(Promise.all(stopped.map(({ released }) => released)), own.signal);
    // Not one that began before.
    await measuring;
    await measure();
  }

  return (workspaceId, signal, stop) => {
    const { promise: released, resolve } = Promise.withResolvers<void>();
    const window = { startedAt: now(), bytes: 0, bytesBefore: slow.bytes };
    const own: Pull = {
      workspaceId,
      writtenBytes: 0,
      plannedBytes: 0,
      isWaiting: false,
      window,
      signal,
      stop,
      released,
    };
    pulls.add(own);
    return {
      async check(bytes) {
        await measureUnless(() => left >= bytes);
        requireShare(own, bytes);
        if (left + sum(slowBeside(own), heldBytes) < bytes) throw notEnough();
      },
      async reserve(written, planned) {
        const bytes = written + planned;
        signal.throwIfAborted();
        await measureUnless(() => left >= bytes);
        // It may have been stopped meanwhile, and must stop none then.
        signal.throwIfAborted();
        requireShare(own, bytes);
        if (left < bytes) await takeBack(own, bytes);
        signal.throwIfAborted();
        if (left < bytes) throw notEnough();
        left -= bytes;
        own.writtenBytes += written;
        own.plannedBytes += planned;
        turnWindow(own);
        own.window.bytes += bytes;
      },
      setWaiting(isWaiting) {
        own.isWaiting = isWaiting;
        own.window = { startedAt: now(), bytes: 0, bytesBefore: slow.bytes };
      },
      release() {
        pulls.delete(own);
        // What was written is free only by a new measurement.
        measuredAt = Number.NEGATIVE_INFINITY;
        resolve();
      },
    };
  };
}

function heldBytes({ writtenBytes, plannedBytes }: Pull): number {
  return writtenBytes + plannedBytes;
}

function sum(pulls: Iterable<Pull>, bytesOf: (pull: Pull) => number): number {
  return [...pulls].reduce((bytes, pull) => bytes + bytesOf(pull), 0);
}

function notEnough(): DomainError {
  return new DomainError("RUNTIME_UNAVAILABLE", "There isn't enough disk space for the image.");
}
