import type { Sandbox } from "../domain/sandbox.ts";
import type { SandboxStore } from "../store/store.ts";
import type { Changes } from "./changes.ts";

/** How long a waiter trusts that no signal was lost. */
const rereadMs = 5_000;

/**
 * Waits until none of the sandboxes is provisioning any more, or the time is up, or `signal` aborts, and answers them as
 * they are then. Watches first and reads after, so no change falls between.
 */
export async function waitUntilSettled(o: {
  store: SandboxStore;
  changes: Changes;
  ids: readonly string[];
  timeoutMs: number;
  signal: AbortSignal;
}): Promise<(Sandbox | undefined)[]> {
  const watch = o.changes.watch(new Set(o.ids));
  const deadline = Date.now() + o.timeoutMs;
  try {
    for (;;) {
      const sandboxes = await Promise.all(o.ids.map((id) => o.store.get(id)));
      const leftMs = deadline - Date.now();
      const settled = sandboxes.every((sandbox) => sandbox?.state !== "provisioning");
      if (settled || leftMs <= 0 || o.signal.aborted) {
        return sandboxes;
      }
      await watch.next(Math.min(leftMs, rereadMs), o.signal);
    }
  } finally {
    watch.stop();
  }
}
