import { containerNameOf } from "@sandgate/container-labels";
import { type Api, ApiError, ignoreStatus } from "@sandgate/kubernetes-api/api";
import type { RawPod } from "@sandgate/kubernetes-api/raw-pod";
import type { ImageAccess } from "../images.ts";
import { type RuntimeSpec, SandboxRefused } from "../lifecycle.ts";
import type { Namespaces } from "./namespaces.ts";
import { finalizer, type Pod, pullGate, settledAnnotation } from "./pod.ts";
import { type PodDefaults, podOf, type SecretContent } from "./pod-spec.ts";
import type { Pods } from "./pods.ts";
import type { PullSecrets } from "./pull-secrets.ts";

/** Requests about one pod. Their answers go to the watched pods. They throw what the API server refuses. */
export interface PodRequests {
  /**
   * Asks the API server for a sandbox's pod, since the watch may be behind: a sandbox that has none is given up.
   * Undefined: there is none in these namespaces, all of them unless given.
   */
  find(sandboxId: string, namespaces?: readonly string[]): Promise<Pod | undefined>;
  /** Creates the sandbox's pod, or finds the one that is there. Undefined: it is about to go. */
  create(spec: RuntimeSpec, access: ImageAccess): Promise<Pod | undefined>;
  /** Gives a gated pod its Secret, and then to the scheduler. */
  release(pod: Pod, content: SecretContent): Promise<void>;
  /** Once the container runs: removes the pod's Secret, and lowers its deadline to its time to live. */
  settle(pod: Pod, spec: RuntimeSpec): Promise<void>;
  /** Asks for a pod's deletion, with so many seconds between SIGTERM and SIGKILL. False: it is gone. */
  delete(pod: Pod, graceSeconds: number): Promise<boolean>;
  /** Takes our finalizer off, so that the object of a deleted pod goes. */
  removeFinalizer(pod: Pod): Promise<void>;
}

export function createPodRequests(o: {
  api: Api;
  namespaces: Namespaces;
  pods: Pods;
  pullSecrets: PullSecrets;
  defaults: PodDefaults;
}): PodRequests {
  const { api, namespaces, pods, pullSecrets } = o;

  const pathOf = ({ namespace, name }: Pick<Pod, "namespace" | "name">) =>
    `/api/v1/namespaces/${namespace}/pods/${name}`;

  /** Changes this pod, and none that has its name by now. Undefined: it is gone. */
  async function patch(
    pod: Pod,
    { metadata, ...rest }: { metadata?: object; spec?: object },
  ): Promise<RawPod | undefined> {
    const body = { metadata: { ...metadata, uid: pod.uid }, ...rest };
    try {
      return (await api.call({ method: "PATCH", path: pathOf(pod), body })) as RawPod;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 404 || (error.status === 422 && error.message.includes("metadata.uid"))) return undefined;
      throw error;
    }
  }

  async function change(pod: Pod, changes: { metadata?: object; spec?: object }): Promise<void> {
    const patched = await patch(pod, changes);
    if (patched) pods.apply(patched);
  }

  return {
    async find(sandboxId, where = namespaces.all) {
      const name = containerNameOf(sandboxId);
      const find = async (namespace: string) => {
        try {
          return await ignoreStatus([404], api.call({ method: "GET", path: pathOf({ namespace, name }) }));
        } catch (error) {
          throw error instanceof ApiError && error.status === 403 ? namespaces.missing(namespace, error) : error;
        }
      };
      const found = await Promise.all(where.map(find));
      for (const raw of found) if (raw !== undefined) pods.apply(raw as RawPod);
      return pods.find(sandboxId);
    },

    async create(spec, access) {
      const namespace = namespaces.of(spec.workspaceId);
      const made = await namespaces.make(namespace, "pods", podOf(spec, access, namespace, o.defaults));
      if (made !== undefined) {
        pods.apply(made as RawPod);
      } else {
        // Made by an earlier attempt, or by another process meanwhile.
        const name = containerNameOf(spec.sandboxId);
        const known = await ignoreStatus([404], api.call({ method: "GET", path: pathOf({ namespace, name }) }));
        if (known !== undefined && !pods.apply(known as RawPod)) {
          const message = `The cluster has a pod ${name} in ${namespace} that is not this installation's.`;
          throw new SandboxRefused({ reason: "provisioning_failed", message });
        }
      }
      return pods.find(spec.sandboxId);
    },

    async release(pod, content) {
      await pullSecrets.give(pod, content);
      await change(pod, { spec: { schedulingGates: [{ $patch: "delete", name: pullGate }] } });
    },

    async settle(pod, spec) {
      const { container, acceptedAt, deadlineSeconds } = pod;
      const deadline = spec.ttlSeconds !== undefined && deadlineSeconds !== undefined;
      const hasSecret = pod.hasPullSecret || spec.env !== undefined;
      if (pod.isSettled || (!hasSecret && !deadline)) return;
      if (hasSecret) await pullSecrets.remove(pod);
      // Both by the node's clock, which the kubelet goes by. Both are cut to seconds, and the platform's own stop counts
      // from up to a second later (`recordStarted`). It comes first by a second.
      const startMs = (container?.startedAt?.getTime() ?? 0) - (acceptedAt?.getTime() ?? 0);
      const lowered = deadline ? Math.ceil(Math.max(0, startMs) / 1000) + (spec.ttlSeconds ?? 0) + 2 : 0;
      await change(pod, {
        metadata: { annotations: { [settledAnnotation]: "true" } },
        ...(deadline && lowered < deadlineSeconds && { spec: { activeDeadlineSeconds: lowered } }),
      });
    },

    async delete(pod, graceSeconds) {
      const body = {
        apiVersion: "v1",
        kind: "DeleteOptions",
        // Never 0, which would take the object away while the container still runs.
        gracePeriodSeconds: Math.max(1, graceSeconds),
        preconditions: { uid: pod.uid },
      };
      const deleted = await ignoreStatus([404, 409], api.call({ method: "DELETE", path: pathOf(pod), body }));
      if (deleted === undefined) pods.forget(pod);
      return deleted !== undefined;
    },

    async removeFinalizer(pod) {
      // The answer is not taken over: the watch may have seen the object go before it comes.
      const patched = await patch(pod, { metadata: { "$deleteFromPrimitiveList/finalizers": [finalizer] } });
      if (!patched) pods.forget(pod);
    },
  };
}
