import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "./logging.ts";

export interface PeriodicTask {
  /** Ends the waiting at once, aborts the signal of a run under way and waits for it. */
  stop(): Promise<void>;
}

/** How far the pause grows while runs fail, unless `everyMs` is longer anyhow. */
const longestDelayMs = 5_000;

/**
 * Does background work over and over, the first time at once, then `everyMs` after each run. A failure ends nothing: while
 * runs fail, the pause doubles up to 5 s, and the log tells the first failure and the end of them (the others at debug level).
 */
export function startPeriodicTask(options: {
  /** For the log, such as "sweep images". */
  what: string;
  everyMs: number;
  logger: Logger;
  /** A run that goes on for long calls `markHealthy` once it works; of any other its end says so. */
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
    if (failures === 1) logger.error({ err: error }, `failed to ${what}; it is tried again`);
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

/** The pause, in milliseconds, after so many failures in a row. */
export function delayAfterFailures(failures: number, everyMs: number): number {
  return Math.max(everyMs, Math.min(everyMs * 2 ** Math.max(0, failures - 1), longestDelayMs));
}
