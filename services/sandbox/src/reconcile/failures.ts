import { DomainError } from "@sandgate/kit/base/domain-error";
import type { FailureReason } from "../domain/sandbox.ts";
import type { Observation } from "./runtime.ts";

/** Why a sandbox failed, as its record tells its user. */
export interface Failure {
  reason: FailureReason;
  message: string;
  exitCode?: number;
}

export const containerLost: Failure = {
  reason: "runtime_lost",
  message: "The container is gone from the engine.",
};

/** The failure that a refusal by registry or runtime is. Undefined: not the sandbox's fault, so try again. */
export function failureOf(error: unknown): Failure | undefined {
  if (!(error instanceof DomainError)) {
    return undefined;
  }
  const { message } = error;
  switch (error.reason) {
    case "IMAGE_PULL_UNAUTHORIZED":
      return { reason: "image_pull_unauthorized", message };
    case "IMAGE_NOT_FOUND_IN_REGISTRY":
    case "IMAGE_NOT_FOUND":
      return { reason: "image_not_found_in_registry", message };
    case "REGISTRY_NOT_FOUND":
      return { reason: "image_pull_unauthorized", message: "The image's registry credential was removed." };
    case "PROVISIONING_FAILED":
    case "VALIDATION_ERROR":
      return { reason: "start_failed", message };
    default:
      return undefined;
  }
}

/** The failure that a container's own end is. */
export function exitFailure({ exitCode, outOfMemory }: Observation): Failure {
  const code = exitCode === undefined ? {} : { exitCode };
  return outOfMemory
    ? { reason: "out_of_memory", message: "The container used more memory than its limit and was killed.", ...code }
    : { reason: "exited", message: `The container exited with code ${exitCode ?? "unknown"}.`, ...code };
}
