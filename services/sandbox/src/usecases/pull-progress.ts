import type { Logger } from "@sandgate/kit/base/logging";
import { startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import type { PullProgress } from "../domain/sandbox.ts";

/** How often the progress of a pull is recorded. */
const everyMs = 500;

/** Makes what runs a pull and records how far it is for its sandbox: from time to time, and at its end. */
export function createPullRecorder(o: {
  record(sandboxId: string, progress: PullProgress): Promise<void>;
  logger: Logger;
}) {
  return async <T>(sandboxId: string, pull: (onProgress: (now: PullProgress) => void) => Promise<T>): Promise<T> => {
    let latest: PullProgress | undefined;
    let recorded: PullProgress | undefined;
    const record = async () => {
      const now = latest;
      if (now === undefined || now === recorded) return;
      await o.record(sandboxId, now);
      recorded = now;
    };
    const what = "record how far a pull is";
    const recording = startPeriodicTask({ what, everyMs, logger: o.logger, work: record });
    try {
      return await pull((now) => {
        latest = now;
      });
    } finally {
      await recording.stop();
      await record().catch((error: unknown) => o.logger.warn({ err: error, sandboxId }, `failed to ${what}`));
    }
  };
}
