/** Lets one task wait until another wakes it. */
export interface Wakeup {
  /** Ends when woken (at once if that happened since the last wait), after `ms`, or when the signal aborts. */
  wait(ms: number, signal: AbortSignal): Promise<void>;
  wake(): void;
}

/** Only one may wait at a time. Its timer doesn't keep the process alive. */
export function createWakeup(): Wakeup {
  let woken = false;
  let onWake: (() => void) | undefined;
  return {
    wait: (ms, signal) =>
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
