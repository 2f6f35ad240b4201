import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import { type Api, ignoreStatus } from "@sandgate/kubernetes-api/api";
import type { Namespaces } from "./namespaces.ts";
import type { Pod } from "./pod.ts";
import type { PodEvents } from "./pod-events.ts";
import { createPodNotes } from "./pod-notes.ts";
import { podSecretOf, type SecretContent } from "./pod-spec.ts";
import type { Pods } from "./pods.ts";

/** How long until a kubelet has pulled again after its first failures: it waits 10 s, then twice as long each time. */
const repullMs = 45_000;

/**
 * The Secrets that private images are pulled with, and that have the environment variables of sandboxes. Each has its
 * pod's name, belongs to the pod, and exists until the container runs.
 */
export interface PullSecrets {
  /** Creates a pod's Secret. Throws SandboxRefused where the cluster refuses it. */
  give(pod: Pod, content: SecretContent): Promise<void>;
  /**
   * Creates the Secret of a pod whose pull was refused or whose variables aren't found, if somebody has deleted it. The
   * kubelet pulls without a Secret then, and also when it doesn't receive an existing one in time. Resolves true when
   * the kubelet is going to try again with it.
   */
  restore(pod: Pod, findContent: () => Promise<SecretContent>): Promise<boolean>;
  remove(pod: Pod): Promise<void>;
}

export function createPullSecrets(o: {
  api: Api;
  namespaces: Namespaces;
  pods: Pods;
  events: PodEvents;
  logger: Logger;
}): PullSecrets {
  const { api, namespaces, pods, events, logger } = o;
  const restoredAtMs = createPodNotes<number>(pods);

  /** False: there is one. */
  const make = async (pod: Pod, content: SecretContent): Promise<boolean> =>
    (await namespaces.make(pod.namespace, "secrets", podSecretOf(pod, content))) !== undefined;

  async function remove({ namespace, name }: Pod): Promise<void> {
    const path = `/api/v1/namespaces/${namespace}/secrets/${name}`;
    await ignoreStatus([404], api.call({ method: "DELETE", path }));
  }

  return {
    async give(pod, content) {
      if (await make(pod, content)) return;
      // The Secret of an earlier attempt may have another credential.
      await remove(pod);
      if (!(await make(pod, content)))
        throw new DomainError("RUNTIME_UNAVAILABLE", "The pod's Secret can't be created.");
    },
    async restore(pod, findContent) {
      const restoredAt = restoredAtMs.get(pod);
      if (restoredAt !== undefined) return performance.now() - restoredAt < repullMs;
      const { sandboxId } = pod;
      if (await make(pod, await findContent())) {
        logger.warn({ sandboxId }, "a pod's Secret was deleted before its container ran, and is created again");
      } else {
        const missed = await events.read(pod, ["FailedToRetrieveImagePullSecret"]);
        if (missed.length === 0) return false;
        logger.warn({ sandboxId }, "a node pulled the image before it had received the Secret");
      }
      restoredAtMs.set(pod, performance.now());
      return true;
    },
    remove,
  };
}
