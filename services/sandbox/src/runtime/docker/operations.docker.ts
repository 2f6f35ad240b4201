import { containerNameOf } from "@sandgate/container-labels";
import type { Engine } from "@sandgate/docker-engine/client";
import { statusOf, toRuntimeUnavailable } from "@sandgate/docker-engine/errors";
import { openExec } from "@sandgate/docker-engine/exec";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { helperCommand, type RuntimeOperations } from "../operations.ts";

/** Exit codes of an exec whose program is missing or can't be run. */
const noProgram = new Set([126, 127]);

/** Operations in containers of a Docker-compatible engine. */
export function createDockerOperations(engine: Engine): RuntimeOperations {
  return {
    async connectHelper(sandboxId, signal) {
      try {
        return await openExec(engine.getContainer(containerNameOf(sandboxId)), helperCommand, { signal, explainEnd });
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        // No such container, or one that doesn't run.
        const status = statusOf(error);
        if (status === 404 || status === 409) {
          throw new DomainError("RUNTIME_UNAVAILABLE", "The sandbox does not run any more.", { cause: error });
        }
        throw toRuntimeUnavailable(error);
      }
    },
  };
}

function explainEnd(exitCode: number | null, errorOutput: string): DomainError {
  const cause = new Error(`the helper ended with ${exitCode}: ${errorOutput.trim()}`);
  if (exitCode !== null && noProgram.has(exitCode)) {
    return new DomainError("CONFLICT", "This sandbox was made without the helper that commands and files need.", {
      hint: "An earlier version of the platform made it. Provision a new sandbox.",
      cause,
    });
  }
  return new DomainError("RUNTIME_UNAVAILABLE", "The sandbox's helper could not be started.", { cause });
}
