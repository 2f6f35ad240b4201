/** How many bytes the batches of all containers hold together. */
export interface BatchRoom {
  /** False: there is no room now, or others wait for it. */
  tryTake(bytes: number): boolean;
  /** Waits in turn. What is more than all of it gets it once the others hold nothing. Throws the signal's reason. */
  take(bytes: number, signal: AbortSignal): Promise<void>;
  free(bytes: number): void;
}

export function createBatchRoom(maxBytes: number): BatchRoom {
  let usedBytes = 0;
  const waiting = new Set<{ bytes: number; enter(): void }>();
  const fits = (bytes: number) => usedBytes === 0 || usedBytes + bytes <= maxBytes;

  function letIn(): void {
    for (const next of waiting) {
      if (!fits(next.bytes)) return;
      waiting.delete(next);
      usedBytes += next.bytes;
      next.enter();
    }
  }

  function tryTake(bytes: number): boolean {
    if (waiting.size > 0 || !fits(bytes)) return false;
    usedBytes += bytes;
    return true;
  }

  return {
    tryTake,
    async take(bytes, signal) {
      signal.throwIfAborted();
      if (tryTake(bytes)) return;
      await new Promise<void>((resolve, reject) => {
        const leave = () => {
          waiting.delete(own);
          reject(signal.reason);
          letIn();
        };
        const own = {
          bytes,
          enter() {
            signal.removeEventListener("abort", leave);
            resolve();
          },
        };
        waiting.add(own);
        signal.addEventListener("abort", leave, { once: true });
      });
    },
    free(bytes) {
      usedBytes -= bytes;
      letIn();
    },
  };
}
