const abortedFirst = Symbol("aborted first");

/**
 * The promise's result, or, when the signal aborts first, what `onAbort` returns or throws; nothing waits for the promise
 * then. An already aborted signal wins.
 */
export async function untilAborted<T, A>(
  promise: Promise<T>,
  signal: AbortSignal,
  onAbort: (reason: unknown) => A,
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

/** Resolves once the signal aborts. */
export function aborted(signal: AbortSignal): Promise<void> {
  return untilAborted(new Promise<never>(() => {}), signal, () => undefined);
}
