import { containerNameOf } from "@sandgate/container-labels";
import type { Engine } from "@sandgate/docker-engine/client";
import { statusOf, toRuntimeUnavailable } from "@sandgate/docker-engine/errors";
import { openExec } from "@sandgate/docker-engine/exec";
import { explainHelperEnd, sandboxEnded } from "../helper-end.ts";
import { helperCommand, type RuntimeOperations } from "../operations.ts";

/** Operations in containers of a Docker-compatible engine. */
export function createDockerOperations(engine: Engine): RuntimeOperations {
  return {
    async connectHelper(sandboxId, signal) {
      try {
        return await openExec(engine.getContainer(containerNameOf(sandboxId)), helperCommand, {
          signal,
          explainEnd: explainHelperEnd,
        });
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        // No such container, or one that doesn't run.
        const status = statusOf(error);
        if (status === 404 || status === 409) throw sandboxEnded(error);
        throw toRuntimeUnavailable(error);
      }
    },
  };
}
