import { DomainError } from "@sandgate/kit/base/domain-error";
import { publicErrors, toPublicReason } from "@sandgate/kit/base/reasons";

/** How often an open wait or stream checks that its caller still has access. */
const recheckMs = 1_000;

/**
 * Repeats `check` until stopped, and calls `onLost` with the error when it refuses access. That a service can't be reached is
 * no refusal.
 */
export function watchAccess(check: () => Promise<void>, onLost: (refusal: DomainError) => void): () => void {
  const recheck = async () => {
    try {
      await check();
    } catch (error) {
      if (error instanceof DomainError && publicErrors[toPublicReason(error.reason)].status < 500) onLost(error);
    }
  };
  const timer = setInterval(() => void recheck(), recheckMs);
  return () => clearInterval(timer);
}
