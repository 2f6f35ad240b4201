import { createWakeup } from "@sandgate/kit/base/wakeup";
import type { EventBus } from "@sandgate/kit/events/bus";

/** Signals on it say that something of the sandbox was stored, on whichever replica. */
export function topicOf(sandboxId: string): string {
  return `telemetry.${sandboxId}`;
}

/** A signal may be lost, so the store is read at least so often. */
const rereadMs = 5_000;

export interface StoredWatch {
  /** Resolves when something was stored since the last call or the watch's beginning, after 5 s, or on the signal. */
  next(signal: AbortSignal): Promise<void>;
  stop(): void;
}

/** Watches for what is stored of a sandbox. To miss nothing, watch first and read after. */
export function watchStored(bus: EventBus, sandboxId: string): StoredWatch {
  const wakeup = createWakeup();
  const stop = bus.watch(topicOf(sandboxId), () => wakeup.wake());
  return { stop, next: (signal) => wakeup.wait(rereadMs, signal) };
}
