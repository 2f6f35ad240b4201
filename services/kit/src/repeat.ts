import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "./logging.ts";

export interface Repetition {
  /** Ends the waiting at once, aborts the signal of a run under way and waits for it. */
  stop(): Promise<void>;
}

/** Does background work over and over, the first time at once, then `everyMs` after each run. A failure is logged and ends nothing. */
export function repeat(options: {
  /** For the log, such as "sweep images". */
  what: string;
  everyMs: number;
  logger: Logger;
  work(signal: AbortSignal): Promise<void>;
}): Repetition {
  const { what, everyMs, logger, work } = options;
  const stopping = new AbortController();
  const { signal } = stopping;
  const runs = (async () => {
    while (!signal.aborted) {
      try {
        await work(signal);
      } catch (error) {
        if (!signal.aborted) logger.error({ err: error }, `failed to ${what}; it is tried again later`);
      }
      await delay(everyMs, undefined, { signal, ref: false }).catch(() => undefined);
    }
  })();
  return {
    async stop() {
      stopping.abort();
      await runs;
    },
  };
}
