import type { EventBus } from "@sandgate/kit/events/bus";
import type { TelemetryStore } from "../store/store.ts";
import { watchStored } from "../store/stored-signal.ts";
import type { ContainerSource } from "./container-source.ts";

const pollTopic = "telemetry.look";

/** Calls the listener when a replica asks for a sandbox's containers to be polled at once. Answers how to stop. */
export function onPollRequest(bus: EventBus, listener: (sandboxId: string) => void): () => void {
  return bus.watch(pollTopic, listener);
}

/**
 * Resolves with true once everything that the sandbox's containers wrote is stored, by whichever replica; at once when none
 * has run. False when the signal aborts first. Throws when the engine or the store can't be read.
 */
export async function awaitDrained(o: {
  containers: ContainerSource;
  store: TelemetryStore;
  bus: EventBus;
  sandboxId: string;
  signal: AbortSignal;
}): Promise<boolean> {
  const { containers, store, bus, sandboxId, signal } = o;
  const stored = watchStored(bus, sandboxId);
  try {
    const listed = await containers.list({ sandboxId, signal });
    const ran = listed.filter(({ state }) => state !== "created");
    const isDrained = async () => {
      const drained = ran.map(({ id, workspaceId }) => store.isDrained({ containerId: id, sandboxId, workspaceId }));
      return (await Promise.all(drained)).every(Boolean);
    };
    for (let isRequested = false; !(await isDrained()); isRequested = true) {
      if (signal.aborted) return false;
      if (!isRequested) bus.signal(pollTopic, sandboxId);
      await stored.next(signal);
    }
    return true;
  } finally {
    stored.stop();
  }
}
