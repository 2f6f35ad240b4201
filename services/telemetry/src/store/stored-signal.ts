import { createWakeup } from "@sandgate/kit/base/wakeup";
import type { EventBus } from "@sandgate/kit/events/bus";

const topicOf = (sandboxId: string) => `telemetry.${sandboxId}`;

/** A signal may be lost, so the store is read at least this often. */
const maxWaitMs = 5_000;

/** Tells every replica that rows of the sandbox were stored. */
export function signalStored(bus: EventBus, sandboxId: string): void {
  bus.signal(topicOf(sandboxId));
}

export interface StoredWatch {
  /** Resolves when rows were stored since the last call or the watch's beginning, after 5 s, or when the signal aborts. */
  next(signal: AbortSignal): Promise<void>;
  stop(): void;
}

/** Watches what is stored of a sandbox, by whichever replica. To miss nothing, watch first and read afterwards. */
export function watchStored(bus: EventBus, sandboxId: string): StoredWatch {
  const wakeup = createWakeup();
  const stop = bus.watch(topicOf(sandboxId), () => wakeup.wake());
  return { stop, next: (signal) => wakeup.wait(maxWaitMs, signal) };
}
