import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "../base/logging.ts";
import { monotonicMs } from "../base/time.ts";

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
  const ended = new AbortController();
  const lost = new AbortController();
  let expiry: NodeJS.Timeout | undefined;
  /** Takes or renews the lease. The timer ends the work in time, also while a renewal waits for the database. */
  const acquire = async (): Promise<boolean> => {
    const askedAt = monotonicMs();
    if ((await leases.acquire([name], holder, ttlMs)).length === 0) return false;
    clearTimeout(expiry);
    expiry = setTimeout(() => lost.abort(), askedAt + ttlMs - monotonicMs()).unref();
    return true;
  };
  if (!(await acquire())) return false;

  const keep = async () => {
    while (!lost.signal.aborted) {
      await delay(ttlMs / 3, undefined, { signal: ended.signal, ref: false }).catch(() => undefined);
      if (ended.signal.aborted) return;
      try {
        if (!(await acquire())) lost.abort();
      } catch (error) {
        logger.warn({ err: error, lease: name }, "failed to renew a lease; will retry");
      }
    }
  };
  const keeping = keep();
  try {
    await work(AbortSignal.any([o.signal, lost.signal]));
  } finally {
    ended.abort();
    // A renewal that is still running would take the lease again.
    await keeping;
    clearTimeout(expiry);
    await releaseLease({ leases, name, holder, logger });
  }
  return true;
}

/** Frees the lease if the holder has it. A failure is logged: the lease will expire. */
export async function releaseLease(o: {
  leases: LeaseStore;
  name: string;
  holder: string;
  logger: Logger;
}): Promise<void> {
  await o.leases
    .release([o.name], o.holder)
    .catch((error: unknown) =>
      o.logger.warn({ err: error, lease: o.name }, "a lease was not released; it will expire"),
    );
}
