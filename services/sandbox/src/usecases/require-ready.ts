import { DomainError } from "@sandgate/kit/base/domain-error";
import { hasExpired, type Sandbox } from "../domain/sandbox.ts";
import { requireSandbox } from "./stop-sandbox.ts";

/** Throws SANDBOX_NOT_FOUND, SANDBOX_NOT_READY, or CONFLICT for a sandbox that has ended or is about to. */
export function requireReady(found: Sandbox | undefined): Sandbox {
  const sandbox = requireSandbox(found);
  if (sandbox.state === "provisioning") {
    throw new DomainError("SANDBOX_NOT_READY", "The sandbox is still provisioning.");
  }
  if (sandbox.state !== "ready") throw endedError(sandbox);
  // Its end may be a moment away, or wait for a service that is away.
  if (hasExpired(sandbox, new Date())) throw endedError({ ...sandbox, state: "stopping", stateReason: "ttl_expired" });
  return sandbox;
}

/** The error for a sandbox that is no longer ready. */
export function endedError({ state, stateReason }: Sandbox): DomainError {
  const how = state === "stopping" ? "is stopping" : state === "failed" ? "has failed" : "was stopped";
  return new DomainError("CONFLICT", `The sandbox ${how} (${stateReason ?? "unknown"}).`, {
    hint: "Provision a new one with POST /sandboxes/provision.",
  });
}
