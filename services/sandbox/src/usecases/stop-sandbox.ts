import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Call } from "@sandgate/kit/rpc/context";
import { beginStop, isLive, type Sandbox, type StopReason } from "../domain/sandbox.ts";
import { sandboxStopRequested } from "../events.ts";
import type { SandboxStore } from "../store/store.ts";
import type { Changes } from "./changes.ts";

/**
 * Begins to stop the sandbox that `find` reads, and returns its record; one that isn't live is returned as it is.
 * Throws SANDBOX_NOT_FOUND when `find` finds none.
 */
export async function stopSandbox(
  { store, changes }: { store: Pick<SandboxStore, "sandboxes">; changes: Changes },
  o: { call: Call; find(): Promise<Sandbox | undefined>; reason: StopReason },
): Promise<Sandbox> {
  for (;;) {
    const sandbox = requireSandbox(await o.find());
    if (!isLive(sandbox.state)) return sandbox;
    const stopping = beginStop(sandbox, o.reason, new Date());
    if (await store.sandboxes.update(stopping, [sandboxStopRequested(o.call, stopping)])) {
      changes.announce(sandbox.id);
      return stopping;
    }
  }
}

/** Throws SANDBOX_NOT_FOUND for undefined. */
export function requireSandbox(sandbox: Sandbox | undefined): Sandbox {
  if (!sandbox) throw new DomainError("SANDBOX_NOT_FOUND", "There is no such sandbox.");
  return sandbox;
}
