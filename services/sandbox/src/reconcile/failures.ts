import { constants } from "node:os";
import { DomainError, messageOf } from "@sandgate/kit/base/domain-error";
import { type Observation, type RuntimeFailure, SandboxRefused } from "../runtime/lifecycle.ts";

/** Why a sandbox failed, as its record shows to its user. */
export interface Failure extends RuntimeFailure {
  exitCode?: number;
}

export const containerLost: Failure = {
  reason: "runtime_lost",
  message: "The container is gone from the engine.",
};

/** The failure that an error of registry or runtime means. Undefined: the sandbox isn't at fault, so try again. */
export function failureOf(error: unknown): Failure | undefined {
  if (!(error instanceof DomainError)) {
    return undefined;
  }
  if (error instanceof SandboxRefused) {
    return error.failure;
  }
  switch (error.reason) {
    case "IMAGE_PULL_UNAUTHORIZED":
      return { reason: "image_pull_unauthorized", ...toldOf(error) };
    case "IMAGE_NOT_FOUND_IN_REGISTRY":
    case "IMAGE_NOT_FOUND":
      return { reason: "image_not_found_in_registry", ...toldOf(error) };
    case "REGISTRY_NOT_FOUND":
      return { reason: "image_pull_unauthorized", message: "The image's registry credential was removed." };
    case "PROVISIONING_FAILED":
    case "VALIDATION_ERROR":
      return { reason: "start_failed", ...toldOf(error) };
    default:
      return undefined;
  }
}

/** What a failure tells of an error. Only a DomainError's message is for users. */
export function toldOf(error: unknown): Pick<Failure, "message" | "detail"> {
  const { message, cause } =
    error instanceof DomainError ? error : { message: "The sandbox can't be started.", cause: error };
  return { message, ...(cause !== undefined && { detail: messageOf(cause) }) };
}

/** Characters of a program's name in a message. */
const longestName = 200;

/** The failure of a start, with the name of the program where the sandbox brought its own command. */
export function withProgram(failure: Failure, [program]: readonly string[] = []): Failure {
  if (failure.reason !== "start_failed" || program === undefined) return failure;
  const name = JSON.stringify(program.slice(0, longestName));
  return { ...failure, message: `${failure.message.replace(/\.$/, "")} (${name}).` };
}

/** The sandbox's failure that its container's end means. */
export function exitFailure({ exitCode, outOfMemory, failure }: Observation): Failure {
  const code = exitCode === undefined ? {} : { exitCode };
  if (failure) {
    return { ...failure, ...code };
  }
  return outOfMemory
    ? { reason: "out_of_memory", message: "The container used more memory than its limit and was killed.", ...code }
    : { reason: "exited", message: `The container exited with code ${describeCode(exitCode)}.`, ...code };
}

/** An exit code with its signal, such as `143 (SIGTERM)`: shells and runtimes report 128 + n for signal n. */
function describeCode(code: number | undefined): string {
  if (code === undefined) return "unknown";
  const [signal] = Object.entries(constants.signals).find(([, number]) => code === 128 + number) ?? [];
  return signal === undefined ? String(code) : `${code} (${signal})`;
}
