import { DomainError } from "@sandgate/kit/base/domain-error";
import { type Api, ApiError, toRuntimeUnavailable } from "@sandgate/kubernetes-api/api";
import { type ExecEnd, openExec } from "@sandgate/kubernetes-api/exec";
import { containerName } from "@sandgate/kubernetes-api/raw-pod";
import { explainHelperEnd, sandboxEnded, saysNoProgram } from "../helper-end.ts";
import { helperCommand, type RuntimeOperations } from "../operations.ts";
import type { Observer } from "./observer.ts";
import type { Pods } from "./pods.ts";
import { hasEnded, isGone } from "./states.ts";

/** How the API server says that it can't reach the kubelet of a pod's node. */
const noKubelet = /dialing backend|dial tcp|connection re(fused|set)|i\/o timeout|no route to host/i;

/** Operations in pods of a cluster. */
export function createKubernetesOperations(o: {
  api: Api;
  pods: Pods;
  observer: Observer;
  /** Whether pods get a helper. */
  hasHelper: boolean;
}): RuntimeOperations {
  const { api, pods, observer } = o;

  function explainEnd({ exitCode, words }: ExecEnd): DomainError {
    const isMissing = exitCode === null && saysNoProgram(words);
    if (isMissing && !o.hasHelper) {
      return new DomainError("CONFLICT", "This platform gives sandboxes no helper, which commands and files need.", {
        hint: "Its operator has to set SANDGATE_HELPER_IMAGE. Sandboxes that are provisioned after that have one.",
        errno: "ENOSYS",
      });
    }
    if (exitCode === null && noKubelet.test(words)) {
      return new DomainError("RUNTIME_UNAVAILABLE", "The sandbox's node can't be reached.", {
        cause: new Error(words),
      });
    }
    return explainHelperEnd(isMissing ? 127 : exitCode, words);
  }

  return {
    async connectHelper(sandboxId, signal) {
      signal.throwIfAborted();
      try {
        const found = await pods.find(sandboxId);
        if (!found || isGone(found) || hasEnded(found, observer.now())) throw sandboxEnded();
        const pod = { namespace: found.namespace, pod: found.name, container: containerName };
        return await openExec(api, pod, helperCommand, { signal, explainEnd });
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        throw error instanceof ApiError && error.status === 404 ? sandboxEnded(error) : toRuntimeUnavailable(error);
      }
    },
  };
}
