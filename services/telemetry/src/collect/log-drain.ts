import type { EventBus } from "@sandgate/kit/events/bus";
import { watchStored } from "../query/stored-watch.ts";
import type { TelemetryStore } from "../store/store.ts";
import type { ContainerSource } from "./container-source.ts";

/** A signal on it, with a sandbox's id, has the replica that collects the sandbox look at its containers. */
export const lookTopic = "telemetry.look";

/**
 * Resolves true once everything that the sandbox's containers wrote is stored, by whichever replica, which is at once when
 * none has run; false when the signal aborts before. Throws when engine or store can't be asked.
 */
export async function awaitDrained(o: {
  source: ContainerSource;
  store: TelemetryStore;
  bus: EventBus;
  sandboxId: string;
  signal: AbortSignal;
}): Promise<boolean> {
  const { source, store, bus, sandboxId, signal } = o;
  const stored = watchStored(bus, sandboxId);
  try {
    const containers = await source.list({ sandboxId, signal });
    const ran = containers.filter(({ state }) => state !== "created");
    const isDrained = async () => {
      const drained = ran.map(({ id, workspaceId }) => store.isDrained({ containerId: id, sandboxId, workspaceId }));
      return (await Promise.all(drained)).every(Boolean);
    };
    for (let isAsked = false; !(await isDrained()); isAsked = true) {
      if (signal.aborted) return false;
      if (!isAsked) bus.signal(lookTopic, sandboxId);
      await stored.next(signal);
    }
    return true;
  } finally {
    stored.stop();
  }
}
