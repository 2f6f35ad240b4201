import { DomainError } from "@sandgate/kit/base/domain-error";
import { type Sandbox as SandboxMessage, SandboxState } from "@sandgate/proto/sandbox/v1/sandbox";
import { stateReasons } from "../../pipeline/errors/state-reasons.ts";

/** The sandbox if it is ready. Otherwise throws an error that says why it is not. */
export function requireReady(sandbox: SandboxMessage): SandboxMessage {
  switch (sandbox.state) {
    case SandboxState.READY:
      return sandbox;
    case SandboxState.FAILED:
      throw new DomainError(
        "PROVISIONING_FAILED",
        `The sandbox failed (${sandbox.stateReason})${sandbox.message ? `: ${sandbox.message}` : "."}`,
        { hint: stateReasons[sandbox.stateReason]?.hint, callersFault: !sandbox.platformsFault },
      );
    case SandboxState.STOPPING:
    case SandboxState.STOPPED:
      throw new DomainError("CONFLICT", `The sandbox was stopped (${sandbox.stateReason}).`, {
        hint: "Provision a new one with POST /sandboxes/provision.",
      });
    default:
      throw new DomainError("SANDBOX_NOT_READY", "The sandbox is still provisioning.");
  }
}
