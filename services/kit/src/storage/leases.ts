import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "../base/logging.ts";

/**
 * Leases divide work among replicas, by the database's clock. They don't make the work correct; compare-and-set does.
 */
export interface LeaseStore {
  /**
   * Takes each of these leases that is free or expired, renews those of the holder, and returns the names that the
   * holder has now.
   */
  acquire(names: readonly string[], holder: string, ttlMs: number): Promise<string[]>;
  /** Returns which of these leases nobody holds. */
  listFree(names: readonly string[]): Promise<string[]>;
  /** Frees those of these leases that the holder has. */
  release(names: readonly string[], holder: string): Promise<void>;
}

/**
 * Takes the lease, runs the work and renews the lease meanwhile. Returns false without a run if another holder has the
 * lease. The work's signal aborts with the given one, and when the lease is lost. Rejects as the work does, and when
 * the database fails.
 */
export async function runLeased(
  o: { leases: LeaseStore; name: string; holder: string; ttlMs: number; signal: AbortSignal; logger: Logger },
  work: (signal: AbortSignal) => Promise<void>,
): Promise<boolean> {
  const { leases, name, holder, ttlMs, logger } = o;
  const acquire = async () => (await leases.acquire([name], holder, ttlMs)).length > 0;
  if (!(await acquire())) return false;
  const ended = new AbortController();
  const lost = new AbortController();

  const keep = async () => {
    for (let heldUntil = performance.now() + ttlMs; performance.now() < heldUntil; ) {
      await delay(ttlMs / 3, undefined, { signal: ended.signal, ref: false }).catch(() => undefined);
      if (ended.signal.aborted) return;
      const askedAt = performance.now();
      try {
        if (!(await acquire())) break;
        heldUntil = askedAt + ttlMs;
      } catch (error) {
        logger.warn({ err: error, lease: name }, "failed to renew a lease; will retry");
      }
    }
    lost.abort();
  };
  const keeping = keep();
  try {
    await work(AbortSignal.any([o.signal, lost.signal]));
  } finally {
    ended.abort();
    // A renewal that is still running would take the lease again.
    await keeping;
    await leases
      .release([name], holder)
      .catch((error: unknown) => logger.warn({ err: error, lease: name }, "a lease was not released; it will expire"));
  }
  return true;
}
