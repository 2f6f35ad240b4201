const abortedFirst = Symbol("aborted first");

/**
 * Returns the promise's result, or what `onAbort` returns or throws if the signal aborts first: unless given, it throws
 * the signal's reason. The promise is then left to itself. A signal that is already aborted wins.
 */
export async function untilAborted<T, A = never>(
  promise: Promise<T>,
  signal: AbortSignal,
  onAbort: (reason: unknown) => A = throwReason,
): Promise<T | A> {
  const { promise: abortion, resolve } = Promise.withResolvers<typeof abortedFirst>();
  const abort = () => resolve(abortedFirst);
  if (signal.aborted) abort();
  else signal.addEventListener("abort", abort, { once: true });
  try {
    const first = await Promise.race([abortion, promise]);
    return first === abortedFirst ? onAbort(signal.reason) : first;
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

function throwReason(reason: unknown): never {
  throw reason;
}

/**
 * Aborts a controller with the signal's reason, at a fraction of the cost of `AbortSignal.any`. The signal keeps the
 * controller in memory, and so may not outlive it by much.
 */
export function followSignal(controller: AbortController, signal: AbortSignal): void {
  const abort = () => controller.abort(signal.reason);
  if (signal.aborted) abort();
  else signal.addEventListener("abort", abort, { once: true });
}

/** Resolves once the signal aborts. */
export function aborted(signal: AbortSignal): Promise<void> {
  return untilAborted(new Promise<never>(() => {}), signal, () => undefined);
}
