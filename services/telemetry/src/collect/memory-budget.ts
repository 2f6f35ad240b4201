/** A limit of bytes that the batches of all containers share. */
export interface MemoryBudget {
  /** False: the budget is used up, or others wait for it. */
  tryReserve(bytes: number): boolean;
  /** Waits in turn. More than the whole budget is granted once nobody else holds any. Throws the signal's reason. */
  reserve(bytes: number, signal: AbortSignal): Promise<void>;
  release(bytes: number): void;
}

export function createMemoryBudget(maxBytes: number): MemoryBudget {
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

  function tryReserve(bytes: number): boolean {
    if (waiting.size > 0 || !fits(bytes)) return false;
    usedBytes += bytes;
    return true;
  }

  return {
    tryReserve,
    async reserve(bytes, signal) {
      signal.throwIfAborted();
      if (tryReserve(bytes)) return;
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
    release(bytes) {
      usedBytes -= bytes;
      letIn();
    },
  };
}
