import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import { monotonicMs } from "@sandgate/kit/base/time";
import type { RuntimeLifecycle } from "../runtime/lifecycle.ts";

const checkEveryMs = 60_000;

/** Whether the runtime can run sandboxes. */
export interface RuntimeHealth {
  /** What keeps sandboxes from being run, if anything does. */
  problem(): DomainError | undefined;
  /** Records a problem that a call ran into. */
  report(problem: DomainError): void;
  /** Checks the runtime if it had a problem or was not checked for a minute. Never rejects. */
  refresh(): Promise<void>;
}

export function createRuntimeHealth({ runtime, logger }: { runtime: RuntimeLifecycle; logger: Logger }): RuntimeHealth {
  let problem: DomainError | undefined;
  let checkedAt = Number.NEGATIVE_INFINITY;

  function report(reported: DomainError): void {
    if (problem?.message !== reported.message) {
      logger.error({ err: reported }, "the container engine can't be used");
    }
    problem = reported;
  }

  return {
    problem: () => problem,
    report,
    async refresh() {
      if (!problem && monotonicMs() - checkedAt < checkEveryMs) {
        return;
      }
      try {
        await runtime.check();
        if (problem) {
          logger.info("the container engine can be used again");
        }
        problem = undefined;
        checkedAt = monotonicMs();
      } catch (error) {
        report(
          error instanceof DomainError
            ? error
            : new DomainError("RUNTIME_UNAVAILABLE", "The container engine can't be used.", { cause: error }),
        );
      }
    },
  };
}
