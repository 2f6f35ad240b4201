/** A connection that lasted so long has not merely failed again, even if nothing came. */
export const steadyMs = 60_000;

/** Waits; throws the signal's reason when it aborts. */
export function delay(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const onAbort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

/** Waits for something that goes on by itself; throws the signal's reason when it aborts. */
export function untilAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work;
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    // Always, or a failure that nobody waits for would end the program.
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}

/**
 * Runs something with a signal that aborts with another, or when its time is up: until it returns, or until it calls
 * `done`. After `done` the signal still aborts with the other one.
 */
export async function abortable<T>(
  o: { signal?: AbortSignal | undefined; timeoutMs: number; onTimeout(): Error },
  run: (signal: AbortSignal, done: () => void) => Promise<T>,
): Promise<T> {
  const { signal, timeoutMs, onTimeout } = o;
  const timeout = new AbortController();
  const timer = Number.isFinite(timeoutMs) ? setTimeout(() => timeout.abort(onTimeout()), timeoutMs) : undefined;
  const done = () => clearTimeout(timer);
  try {
    return await run(signal ? AbortSignal.any([signal, timeout.signal]) : timeout.signal, done);
  } finally {
    done();
  }
}

/** A random UUID. `crypto.randomUUID` isn't there on pages that came over plain HTTP. */
export function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const variant = "89ab".charAt(Number.parseInt(hex.charAt(16), 16) % 4);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20)}`;
}

/** A promise with what settles it. Node.js 20 has no `Promise.withResolvers`. */
export function withResolvers(): { promise: Promise<void>; resolve(): void; reject(reason: unknown): void } {
  let resolve = () => {};
  let reject: (reason: unknown) => void = () => {};
  const promise = new Promise<void>((onResolve, onReject) => {
    resolve = onResolve;
    reject = onReject;
  });
  return { promise, resolve, reject };
}
