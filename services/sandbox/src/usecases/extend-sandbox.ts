import type { Call } from "@sandgate/kit/rpc/context";
import { extend, type Sandbox } from "../domain/sandbox.ts";
import { sandboxExtended } from "../events.ts";
import type { SandboxStore } from "../store/store.ts";
import type { Changes } from "./changes.ts";
import { requireReady } from "./require-ready.ts";

/**
 * Moves the end of the sandbox that `find` reads, and returns its record. Throws SANDBOX_NOT_FOUND, SANDBOX_NOT_READY,
 * or CONFLICT for one that has ended and for an end after the image's limit.
 */
export async function extendSandbox(
  { store, changes }: { store: Pick<SandboxStore, "sandboxes">; changes: Changes },
  o: { call: Call; find(): Promise<Sandbox | undefined>; ttlSeconds: number; shorten: boolean },
): Promise<Sandbox> {
  for (;;) {
    const sandbox = requireReady(await o.find());
    const extended = extend(sandbox, o, new Date());
    if (extended === sandbox) return sandbox;
    if (await store.sandboxes.update(extended, [sandboxExtended(o.call, extended)])) {
      changes.announce(sandbox.id);
      return extended;
    }
  }
}
