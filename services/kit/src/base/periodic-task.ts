import { setTimeout as delay } from "node:timers/promises";
import { backoffMs } from "./backoff.ts";
import type { Logger } from "./logging.ts";

export interface PeriodicTask {
  /** Cancels the next run, aborts the signal of the current one and waits for it to end. */
  stop(): Promise<void>;
}

/** The longest delay while runs fail, unless `everyMs` is longer. */
const longestDelayMs = 5_000;

/**
 * Runs background work repeatedly: at once, then `everyMs` after the end of each run. A failure doesn't end the task.
 * While runs fail, the delay doubles up to 5 s. The first failure and the recovery are logged, and the failures between
 * at debug level.
 */
export function startPeriodicTask(options: {
  /** The work in the words of the log, such as "sweep images". */
  what: string;
  everyMs: number;
  logger: Logger;
  /** A run is healthy when it ends without an error. A long run calls `markHealthy` as soon as it works. */
  work(signal: AbortSignal, markHealthy: () => void): Promise<void>;
}): PeriodicTask {
  const { what, everyMs, logger, work } = options;
  const stopping = new AbortController();
  const { signal } = stopping;
  let failures = 0;

  const markHealthy = () => {
    if (failures > 0) logger.info(`able to ${what} again`);
    failures = 0;
  };
  const failed = (error: unknown) => {
    failures += 1;
    if (failures === 1) logger.error({ err: error }, `failed to ${what}; will retry`);
    else logger.debug({ err: error, failures }, `failed to ${what} again`);
  };
  const runs = (async () => {
    while (!signal.aborted) {
      try {
        await work(signal, markHealthy);
        markHealthy();
      } catch (error) {
        if (!signal.aborted) failed(error);
      }
      await delay(delayAfterFailures(failures, everyMs), undefined, { signal, ref: false }).catch(() => undefined);
    }
  })();
  return {
    async stop() {
      stopping.abort();
      await runs;
    },
  };
}

/** Returns the milliseconds until the next run after so many failures in a row. */
export function delayAfterFailures(failures: number, everyMs: number, random?: () => number): number {
  return failures === 0
    ? everyMs
    : Math.max(everyMs, backoffMs(failures, { firstMs: everyMs, lastMs: longestDelayMs }, random));
}
