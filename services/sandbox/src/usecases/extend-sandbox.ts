import { DomainError } from "@sandgate/kit/base/domain-error";
import { extend, type Sandbox } from "../domain/sandbox.ts";
import type { SandboxStore } from "../store/store.ts";
import type { Changes } from "./changes.ts";
import { requireSandbox } from "./stop-sandbox.ts";

/**
 * Moves the end of the sandbox that `find` reads, and returns its record. Throws SANDBOX_NOT_FOUND, SANDBOX_NOT_READY,
 * or CONFLICT for one that has ended and for an end after the image's limit.
 */
export async function extendSandbox(
  { store, changes }: { store: Pick<SandboxStore, "sandboxes">; changes: Changes },
  o: { find(): Promise<Sandbox | undefined>; ttlSeconds: number; shorten: boolean },
): Promise<Sandbox> {
  for (;;) {
    const sandbox = requireSandbox(await o.find());
    requireReady(sandbox);
    const extended = extend(sandbox, o, new Date());
    if (extended === sandbox) return sandbox;
    if (await store.sandboxes.update(extended, [])) {
      changes.announce(sandbox.id);
      return extended;
    }
  }
}

function requireReady({ state, stateReason }: Sandbox): void {
  if (state === "ready") return;
  if (state === "provisioning") {
    throw new DomainError("SANDBOX_NOT_READY", "The sandbox is still provisioning.");
  }
  throw new DomainError("CONFLICT", `The sandbox is ${state} (${stateReason}).`, {
    hint: "Only a ready sandbox can be extended. Provision a new one with POST /sandboxes/provision.",
  });
}
