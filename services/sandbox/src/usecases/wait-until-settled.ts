import { monotonicMs } from "@sandgate/kit/base/time";
import type { Sandbox } from "../domain/sandbox.ts";
import type { Sandboxes } from "../store/sandboxes.ts";
import type { Changes } from "./changes.ts";

/** Records are reread this often, since a signal can be lost. */
const rereadMs = 5_000;

/**
 * Waits until none of the sandboxes is provisioning any more, `timeoutMs` is over, or `signal` aborts, and returns the
 * sandboxes as they are then. It watches before it reads, so that it misses no change.
 */
export async function waitUntilSettled(o: {
  sandboxes: Pick<Sandboxes, "get">;
  changes: Changes;
  ids: readonly string[];
  timeoutMs: number;
  signal: AbortSignal;
}): Promise<(Sandbox | undefined)[]> {
  const watch = o.changes.watch(new Set(o.ids));
  const deadline = monotonicMs() + o.timeoutMs;
  try {
    for (;;) {
      const sandboxes = await Promise.all(o.ids.map((id) => o.sandboxes.get(id)));
      const leftMs = deadline - monotonicMs();
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
