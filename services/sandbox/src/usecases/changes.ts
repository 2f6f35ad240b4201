import { createWakeup } from "@sandgate/kit/base/wakeup";
import type { EventBus } from "@sandgate/kit/events/bus";

/** The signal that a sandbox's record has changed; its body is the sandbox's id. */
const topic = "sandbox.changed";

/** Signals to every replica that a record has changed. A signal may be lost, so waiters also reread now and then. */
export interface Changes {
  announce(sandboxId: string): void;
  /** Calls `listener` after every announced change, until the returned function is called. */
  listen(listener: (sandboxId: string) => void): () => void;
  /**
   * Listens from now on. `next` resolves at the first change of one of `ids` since its last call, after `ms`, or on
   * abort.
   */
  watch(ids: ReadonlySet<string>): { next(ms: number, signal: AbortSignal): Promise<void>; stop(): void };
}

export function createChanges(bus: Pick<EventBus, "signal" | "watch">): Changes {
  const listeners = new Set<(sandboxId: string) => void>();
  bus.watch(topic, (sandboxId) => {
    for (const listener of [...listeners]) {
      listener(sandboxId);
    }
  });
  const listen = (listener: (sandboxId: string) => void) => {
    listeners.add(listener);
    return () => {
      listeners.delete(listener);
    };
  };
  return {
    announce: (sandboxId) => bus.signal(topic, sandboxId),
    listen,
    watch(ids) {
      const wakeup = createWakeup();
      const stop = listen((id) => {
        if (ids.has(id)) wakeup.wake();
      });
      return { stop, next: (ms, signal) => wakeup.wait(ms, signal) };
    },
  };
}
