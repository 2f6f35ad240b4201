/** One waits, others wake. */
export interface Sleeper {
  /** Ends when woken, at once when that happened since the last sleep, or after `ms`, or when the signal aborts. */
  sleep(ms: number, signal: AbortSignal): Promise<void>;
  wake(): void;
}

/** For one that sleeps in turn with what it does: there is one sleep at a time. Its timer doesn't keep the process alive. */
export function createSleeper(): Sleeper {
  let woken = false;
  let onWake: (() => void) | undefined;
  return {
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        const end = () => {
          clearTimeout(timer);
          signal.removeEventListener("abort", end);
          onWake = undefined;
          woken = false;
          resolve();
        };
        const timer = setTimeout(end, ms).unref();
        signal.addEventListener("abort", end);
        onWake = end;
        if (woken || signal.aborted) end();
      }),
    wake() {
      woken = true;
      onWake?.();
    },
  };
}
