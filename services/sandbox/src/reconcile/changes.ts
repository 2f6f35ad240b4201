import { createWakeup } from "@sandgate/kit/base/wakeup";
import type { EventBus } from "@sandgate/kit/events/bus";

/** The topic that says a sandbox's record changed; the body is its id. */
const topic = "sandbox.changed";

/** Wakes those who wait for a change of a sandbox, on whichever replica it happens. Best effort: waiters read again. */
export interface Changes {
  announce(sandboxId: string): void;
  /** Calls `listener` after every announced change of any sandbox, until the returned function is called. */
  listen(listener: (sandboxId: string) => void): () => void;
  /** Starts to listen at once; `next` resolves at the first change of one of `ids` since, or after `ms`, or at an abort. */
  watch(ids: ReadonlySet<string>): { next(ms: number, signal: AbortSignal): Promise<void>; stop(): void };
}

export function createChanges(bus: EventBus): Changes {
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
