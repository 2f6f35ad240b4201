const over = Symbol("aborted");

/**
 * What the promise comes to, or, once the signal aborts before, what `onAbort` answers or throws; the promise is left to
 * itself then. A signal that has aborted already goes first.
 */
export async function untilAborted<T, A>(
  promise: Promise<T>,
  signal: AbortSignal,
  onAbort: (reason: unknown) => A,
): Promise<T | A> {
  const { promise: abortion, resolve } = Promise.withResolvers<typeof over>();
  const abort = () => resolve(over);
  if (signal.aborted) abort();
  else signal.addEventListener("abort", abort, { once: true });
  try {
    const first = await Promise.race([abortion, promise]);
    return first === over ? onAbort(signal.reason) : first;
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

/** Resolves once the signal aborts. */
export function aborted(signal: AbortSignal): Promise<void> {
  return untilAborted(new Promise<never>(() => {}), signal, () => undefined);
}
