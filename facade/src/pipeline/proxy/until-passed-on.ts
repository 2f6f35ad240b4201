import { DomainError } from "@sandgate/kit/base/domain-error";

/** How long what a client sent last may take to reach the sandbox once the client has left. */
const lastMs = 5_000;

/**
 * For passing on what a client sends: aborts at once, with its reason, when a live request is ended by us, and 5 s
 * later when its client has merely left.
 */
export function untilPassedOn(live: AbortSignal): AbortSignal {
  const controller = new AbortController();
  const abort = () => controller.abort(live.reason);
  const end = () => {
    if (live.reason instanceof DomainError) abort();
    else setTimeout(abort, lastMs).unref();
  };
  if (live.aborted) end();
  else live.addEventListener("abort", end, { once: true });
  return controller.signal;
}
