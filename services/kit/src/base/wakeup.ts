/** Lets one task wait until another wakes it. */
export interface Wakeup {
  /**
   * Ends when the task is woken, after `ms`, or when the signal aborts; at once if the task was woken since its last
   * wait.
   */
  wait(ms: number, signal: AbortSignal): Promise<void>;
  wake(): void;
}

/** Creates a wakeup for one waiting task at a time. Its timer doesn't keep the process alive. */
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
