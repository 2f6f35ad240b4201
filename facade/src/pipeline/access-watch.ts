import { DomainError } from "@sandgate/kit/base/domain-error";
import { publicErrors, toPublicReason } from "@sandgate/kit/base/reasons";

/** How often an open wait or stream asks whether its caller may still have it. */
const recheckMs = 1_000;

/** Calls `lost` with the refusal once `check` refuses, until it is stopped. A service that can't be asked refuses nobody. */
export function watchAccess(check: () => Promise<void>, lost: (refusal: DomainError) => void): () => void {
  const recheck = async () => {
    try {
      await check();
    } catch (error) {
      if (error instanceof DomainError && publicErrors[toPublicReason(error.reason)].status < 500) lost(error);
    }
  };
  const timer = setInterval(() => void recheck(), recheckMs);
  return () => clearInterval(timer);
}
