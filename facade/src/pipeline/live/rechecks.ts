import { DomainError } from "@sandgate/kit/base/domain-error";
import { publicErrors, toPublicReason } from "@sandgate/kit/base/reasons";
import { monotonicMs } from "@sandgate/kit/base/time";

const recheckMs = 1_000;
/**
 * How long something stays open while access to it can't be checked, since identity or workspace doesn't answer. It
 * outlasts the election of a database and the restart of a process.
 */
export const uncheckedMs = 30_000;

/**
 * Checks every second whether something may stay open. Until it is stopped by what it returns, it calls `end` when
 * `check` throws a refusal, with that, and with UPSTREAM_ERROR when nothing could be checked for `uncheckedMs`.
 */
export function recheck(check: () => Promise<unknown>, end: (reason: DomainError) => void): () => void {
  let checkedAtMs = monotonicMs();
  const checkAgain = async () => {
    const askedAtMs = monotonicMs();
    try {
      await check();
      checkedAtMs = askedAtMs;
    } catch (error) {
      if (isRefusal(error)) end(error);
      else if (askedAtMs - checkedAtMs > uncheckedMs) end(unchecked(error));
    }
  };
  const timer = setInterval(() => void checkAgain(), recheckMs);
  return () => clearInterval(timer);
}

function unchecked(cause: unknown): DomainError {
  return new DomainError("UPSTREAM_ERROR", "Whether you still have access can't be checked at the moment.", { cause });
}

/** Whether an error says that the caller has no access. That a service can't be reached doesn't. */
function isRefusal(error: unknown): error is DomainError {
  return error instanceof DomainError && publicErrors[toPublicReason(error.reason)].status < 500;
}
