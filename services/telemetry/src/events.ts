import { createWakeup } from "@sandgate/kit/base/wakeup";
import type { EventBus } from "@sandgate/kit/events/bus";
import { type StagedEvent, stageEvent } from "@sandgate/kit/events/outbox";
import { WorkspacePurgedSchema } from "@sandgate/proto/telemetry/v1/telemetry_events";

export function workspacePurged(workspaceId: string, at: Date): StagedEvent {
  return stageEvent({
    subject: "sandgate.telemetry.workspace.workspace_purged.v1",
    entityId: workspaceId,
    entityVersion: at.getTime(),
    workspaceId,
    schema: WorkspacePurgedSchema,
    payload: { workspaceId },
  });
}

// Signals wake other replicas. One may be lost, so whoever waits for it also looks by itself now and then.

const listingTopic = "telemetry.look";
/** How often a listing that is still needed is asked for again. */
export const listingRepeatMs = 2_000;
/** The store is read at least this often. */
const maxStoredWaitMs = 5_000;

const storedTopicOf = (sandboxId: string) => `telemetry.${sandboxId}`;

/** Wakes every replica that waits for rows of the sandbox: some were stored. */
export function signalStored(bus: EventBus, sandboxId: string): void {
  bus.signal(storedTopicOf(sandboxId));
}

export interface StoredWatch {
  /**
   * Resolves when rows were stored since the last call or the watch's beginning, after 5 s, or when the signal aborts.
   */
  next(signal: AbortSignal): Promise<void>;
  stop(): void;
}

/** Watches what any replica stores of a sandbox. To miss nothing, watch first and read afterwards. */
export function watchStored(bus: EventBus, sandboxId: string): StoredWatch {
  const wakeup = createWakeup();
  const stop = bus.watch(storedTopicOf(sandboxId), () => wakeup.wake());
  return { stop, next: (signal) => wakeup.wait(maxStoredWaitMs, signal) };
}

/** Asks the collector of the sandbox, wherever it runs, to list the sandbox's containers at once. */
export function requestListing(bus: EventBus, sandboxId: string): void {
  bus.signal(listingTopic, sandboxId);
}

/** Calls the listener with each sandbox that a listing is requested of, by any replica. Returns how to stop. */
export function onListingRequest(bus: EventBus, listener: (sandboxId: string) => void): () => void {
  return bus.watch(listingTopic, listener);
}

/** The sandboxes that a listing is requested of from now on, by any replica. Ends when the signal aborts. */
export async function* watchListingRequests(bus: EventBus, signal: AbortSignal): AsyncGenerator<string> {
  const requested = new Set<string>();
  const wakeup = createWakeup();
  const unwatch = onListingRequest(bus, (sandboxId) => {
    requested.add(sandboxId);
    wakeup.wake();
  });
  try {
    while (!signal.aborted) {
      for (const sandboxId of requested) {
        requested.delete(sandboxId);
        yield sandboxId;
      }
      await wakeup.wait(listingRepeatMs, signal);
    }
  } finally {
    unwatch();
  }
}
