import { createWakeup } from "@sandgate/kit/base/wakeup";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { TelemetryStore } from "../store/store.ts";
import { watchStored } from "../store/stored-signal.ts";
import type { ContainerSource } from "./container-source.ts";

const pollTopic = "telemetry.look";
/** A signal may be lost. */
const repeatMs = 2_000;

/** Calls the listener when a replica asks for a sandbox's containers to be polled at once. Returns how to stop. */
export function onPollRequest(bus: EventBus, listener: (sandboxId: string) => void): () => void {
  return bus.watch(pollTopic, listener);
}

/** The sandboxes whose containers are asked to be polled from now on, by whichever replica. Ends when the signal aborts. */
export async function* watchPollRequests(bus: EventBus, signal: AbortSignal): AsyncGenerator<string> {
  const asked = new Set<string>();
  const wakeup = createWakeup();
  const unwatch = onPollRequest(bus, (sandboxId) => {
    asked.add(sandboxId);
    wakeup.wake();
  });
  try {
    while (!signal.aborted) {
      for (const sandboxId of asked) {
        asked.delete(sandboxId);
        yield sandboxId;
      }
      await wakeup.wait(repeatMs, signal);
    }
  } finally {
    unwatch();
  }
}

interface DrainQuestion {
  /** Undefined: only collectors on nodes see containers. */
  containers: ContainerSource | undefined;
  store: TelemetryStore;
  sandboxId: string;
  /** Whose the sandbox is; only asked where `containers` don't tell. */
  findWorkspace(): Promise<string>;
  signal: AbortSignal;
}

/**
 * Resolves with true once everything that the sandbox's containers wrote is stored, by whichever replica, or its workspace is deleted;
 * at once when none has run. False when the signal aborts first. Throws when the engine, the store or the workspace can't be read.
 * Without `containers` the sandbox's must have run, and the logs of all that are known must be stored.
 */
export async function awaitDrained(o: DrainQuestion & { bus: EventBus }): Promise<boolean> {
  const { bus, sandboxId, signal } = o;
  const stored = watchStored(bus, sandboxId);
  try {
    const isDrained = await openCheck(o);
    for (let requestedAt = 0; !(await isDrained()); ) {
      if (signal.aborted) return false;
      if (performance.now() - requestedAt >= repeatMs || requestedAt === 0) {
        requestedAt = performance.now();
        bus.signal(pollTopic, sandboxId);
      }
      await stored.next(signal);
    }
    return true;
  } finally {
    stored.stop();
  }
}

async function openCheck(o: DrainQuestion): Promise<() => Promise<boolean>> {
  const { containers, store, sandboxId, signal } = o;
  if (!containers) {
    const sandbox = { sandboxId, workspaceId: await o.findWorkspace() };
    return () => store.isSandboxDrained(sandbox);
  }
  const listed = await containers.list({ sandboxId, signal });
  const ran = listed.filter(({ state }) => state !== "created");
  return async () => {
    const drained = ran.map(({ id, workspaceId }) => store.isDrained({ containerId: id, sandboxId, workspaceId }));
    return (await Promise.all(drained)).every(Boolean);
  };
}
