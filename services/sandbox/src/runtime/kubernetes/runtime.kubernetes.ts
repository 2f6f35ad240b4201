import { containerNameOf } from "@sandgate/docker-engine/containers";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import type { Metrics } from "@sandgate/kit/base/metrics";
import { createWakeup } from "@sandgate/kit/base/wakeup";
import { type ImageAccess, type Observation, type Runtime, type RuntimeSpec, SandboxRefused } from "../lifecycle.ts";
import { ApiError, ignoreStatus, openApi, toRuntimeUnavailable } from "./api.ts";
import { createNamespaces } from "./namespaces.ts";
import { createObserver } from "./observer.ts";
import { finalizer, type Pod, pullGate, type RawPod, settledAnnotation } from "./pod.ts";
import { createPodEvents } from "./pod-events.ts";
import { type EgressPolicy, type PodDefaults, podOf } from "./pod-spec.ts";
import { createPods } from "./pods.ts";
import { createPullSecrets } from "./pull-secrets.ts";
import { hasEnded, isGone, isNews } from "./states.ts";

/** Besides the time that a stop gives, how long a kubelet may take to report the end: until the pod is overdue (states.ts). */
const stopSlackMs = 20_000;
/** How long a pod may wait for a scheduler's first look, until the API server itself is asked: the watch may be behind. */
const slowSchedulingMs = 10_000;
/** How long it may take until a change that another replica has just made is seen. */
const settleMs = 2_000;

export interface KubernetesRuntimeOptions {
  /** `kubernetes:` in a pod, or `kubernetes:<path of a kubeconfig>`. */
  address: string;
  installationId: string;
  /** The namespace of all pods; with more than one, what their names begin with. */
  namespace: string;
  /** How many namespaces the pods are spread over, by workspace. */
  namespaces: number;
  /** False: no network policy, and no demands on the namespace. */
  isolation: boolean;
  pod: Omit<PodDefaults, "installationId" | "nameservers" | "architecture">;
  network: EgressPolicy;
  /** Requests that change something, at most. */
  writesPerSecond: number;
  logger: Logger;
  metrics?: Metrics;
}

/** Sandboxes as pods of a Kubernetes cluster (1.30 or later). Nothing is connected before the first call. */
export function createKubernetesRuntime(options: KubernetesRuntimeOptions): Runtime {
  const { installationId, logger } = options;
  const api = openApi(options.address, options);
  const namespaces = createNamespaces({ ...options, api });
  const pods = createPods({
    api,
    namespaces: namespaces.all,
    installationId,
    logger,
  });
  const defaults: PodDefaults = {
    ...options.pod,
    installationId,
    nameservers: options.network.nameservers,
    architecture: process.arch === "x64" ? "amd64" : process.arch,
  };
  const ensuring = new Map<string, Promise<Observation>>();
  const events = createPodEvents({ api, pods });
  const observer = createObserver({ api, events });
  const pullSecrets = createPullSecrets({ api, namespaces, pods, events, logger });

  const pathOf = ({ namespace, name }: Pick<Pod, "namespace" | "name">) =>
    `/api/v1/namespaces/${namespace}/pods/${name}`;
  const findAccess = async (spec: RuntimeSpec): Promise<ImageAccess> =>
    (await spec.findAccess?.()) ?? { registryHost: "", username: "", password: "", volumes: [] };

  /** Undefined: the sandbox's pod is there already, or is about to go. */
  async function create(spec: RuntimeSpec, access: ImageAccess): Promise<Pod | undefined> {
    const namespace = namespaces.of(spec.workspaceId);
    const made = await namespaces.make(namespace, "pods", podOf(spec, access, namespace, defaults));
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
  }

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

  /** Gives a gated pod its Secret, and then to the scheduler. */
  async function release(pod: Pod, access: ImageAccess): Promise<void> {
    await pullSecrets.give(pod, access);
    const gates = [{ $patch: "delete", name: pullGate }];
    const patched = await patch(pod, { spec: { schedulingGates: gates } });
    if (patched) pods.apply(patched);
  }

  /** Once the container runs: its Secret goes, and its deadline becomes its time to live. */
  async function settle(pod: Pod, spec: RuntimeSpec): Promise<void> {
    const { container, acceptedAt, deadlineSeconds } = pod;
    const deadline = spec.ttlSeconds !== undefined && deadlineSeconds !== undefined;
    if (pod.isSettled || (!pod.hasPullSecret && !deadline)) return;
    if (pod.hasPullSecret) await pullSecrets.remove(pod);
    // Both by the node's clock, which the kubelet goes by. A second more, as both are cut to seconds: the platform's own stop comes first.
    const startMs = (container?.startedAt?.getTime() ?? 0) - (acceptedAt?.getTime() ?? 0);
    const lowered = deadline ? Math.ceil(Math.max(0, startMs) / 1000) + (spec.ttlSeconds ?? 0) + 1 : 0;
    const patched = await patch(pod, {
      metadata: { annotations: { [settledAnnotation]: "true" } },
      ...(deadline && lowered < deadlineSeconds && { spec: { activeDeadlineSeconds: lowered } }),
    });
    if (patched) pods.apply(patched);
  }

  async function ensureOnce(spec: RuntimeSpec): Promise<Observation> {
    try {
      let pod = await pods.find(spec.sandboxId);
      let access: ImageAccess | undefined;
      if (!pod) {
        await namespaces.verifyRecent();
        access = await findAccess(spec);
        pod = await create(spec, access);
      } else if (waitsForScheduler(pod)) {
        pod = await askFor(spec.sandboxId, [pod.namespace]);
      }
      if (!pod || isGone(pod)) {
        throw new DomainError("RUNTIME_UNAVAILABLE", "The pod of this sandbox is being removed.");
      }
      if (pod.isGated && pod.deletionAt === undefined) {
        await release(pod, access ?? (await findAccess(spec)));
        pod = (await pods.find(spec.sandboxId)) ?? pod;
      }
      const seen = await observer.observeWithEvents(pod);
      if (!seen) throw new DomainError("RUNTIME_UNAVAILABLE", "The pod of this sandbox is being removed.");
      if (seen.phase === "running") await settle(pod, spec);
      // What the kubelet probes must be what is meant.
      if (seen.isReady && pod.readinessPort !== spec.readinessPort) return { ...seen, isReady: false };
      if (seen.phase !== "created" || !seen.problem?.isFinal) return seen;
      const isRefused = seen.problem.reason === "image_pull_unauthorized" && pod.hasPullSecret && !pod.deletionAt;
      if (isRefused && (await pullSecrets.restore(pod, () => findAccess(spec))))
        return { ...seen, problem: { ...seen.problem, isFinal: false } };
      throw new SandboxRefused(seen.problem);
    } catch (error) {
      throw toRuntimeUnavailable(error);
    }
  }

  /** Whether no scheduler has said anything of it for long. */
  function waitsForScheduler({ isGated, scheduledAt, unschedulable, createdAt }: Pod): boolean {
    if (isGated || scheduledAt !== undefined || unschedulable !== undefined) return false;
    return observer.now().getTime() - createdAt.getTime() > slowSchedulingMs;
  }

  /** Asks the API server for a pod, since the watch may be behind: a sandbox that has none is given up. */
  async function askFor(sandboxId: string, where = namespaces.all): Promise<Pod | undefined> {
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
  }

  /** Asks for a pod's deletion. Answers false when it is gone. */
  async function requestDeletion(pod: Pod, seconds: number): Promise<boolean> {
    const body = {
      apiVersion: "v1",
      kind: "DeleteOptions",
      // Never 0, which would take the object away while the container still runs.
      gracePeriodSeconds: Math.max(1, seconds),
      preconditions: { uid: pod.uid },
    };
    const deleted = await ignoreStatus([404, 409], api.call({ method: "DELETE", path: pathOf(pod), body }));
    if (deleted === undefined) pods.forget(pod);
    return deleted !== undefined;
  }

  return {
    async check() {
      await namespaces.verify();
      await pods.current();
    },

    // A node's images are the kubelet's, which asks the registry for each pod.
    findLocalImage: () => Promise.resolve(undefined),

    ensure(spec) {
      const running = ensuring.get(spec.sandboxId) ?? ensureOnce(spec).finally(() => ensuring.delete(spec.sandboxId));
      ensuring.set(spec.sandboxId, running);
      return running;
    },

    async inspect(sandboxId) {
      try {
        const pod = (await pods.find(sandboxId)) ?? (await askFor(sandboxId));
        return pod && (await observer.observeWithEvents(pod));
      } catch (error) {
        throw toRuntimeUnavailable(error);
      }
    },

    async probe(sandboxId, readinessPort, signal) {
      signal.throwIfAborted();
      try {
        const pod = await pods.find(sandboxId);
        const isReady = pod !== undefined && pod.readinessPort === readinessPort && (await observer.isReady(pod));
        signal.throwIfAborted();
        return isReady;
      } catch (error) {
        signal.throwIfAborted();
        throw toRuntimeUnavailable(error);
      }
    },

    // The kubelet evicts a pod that wrote more than its limit.
    measureDisk: () => Promise.resolve("limited"),

    async stop(sandboxId, graceSeconds) {
      const pod = await pods.find(sandboxId);
      if (!pod || isGone(pod) || hasEnded(pod, observer.now())) return;
      try {
        if (!(await requestDeletion(pod, graceSeconds))) return;
      } catch (error) {
        throw toRuntimeUnavailable(error);
      }
      const ended = (seen: Pod | undefined) =>
        !seen || seen.uid !== pod.uid || isGone(seen) || hasEnded(seen, observer.now());
      if (!(await pods.until(sandboxId, ended, graceSeconds * 1000 + stopSlackMs))) {
        throw new DomainError("RUNTIME_UNAVAILABLE", "The sandbox's node did not end it in time.");
      }
    },

    async remove(sandboxId) {
      const pod = await pods.find(sandboxId);
      if (!pod || isGone(pod)) return;
      try {
        // First: a pod without our finalizer that nobody deletes would stay. One that was stopped has been deleted already.
        if ((pod.deletionAt === undefined || !hasEnded(pod, observer.now())) && !(await requestDeletion(pod, 1)))
          return;
        const patched = await patch(pod, { metadata: { "$deleteFromPrimitiveList/finalizers": [finalizer] } });
        if (!patched) pods.forget(pod);
      } catch (error) {
        throw toRuntimeUnavailable(error);
      }
      await pods.until(sandboxId, (seen) => !seen || seen.uid !== pod.uid || isGone(seen), settleMs);
    },

    async list() {
      return [...(await pods.current()).values()].flatMap((pod) => {
        const seen = observer.observe(pod);
        return seen
          ? [{ sandboxId: seen.sandboxId, workspaceId: seen.workspaceId, phase: seen.phase, createdAt: seen.createdAt }]
          : [];
      });
    },

    // Images and containers are on the nodes' disks.
    findDataFolder: () => Promise.resolve(undefined),

    async *observe(signal) {
      const changed = new Set<string>();
      const wakeup = createWakeup();
      const stopListening = pods.listen((sandboxId, pod, before) => {
        if (!isNews(before, pod, observer.now())) return;
        changed.add(sandboxId);
        wakeup.wake();
      });
      try {
        for (const sandboxId of (await pods.current().catch(() => new Map())).keys()) changed.add(sandboxId);
        while (!signal.aborted) {
          for (const sandboxId of changed) {
            changed.delete(sandboxId);
            yield { sandboxId };
          }
          if (changed.size === 0) await wakeup.wait(60_000, signal);
        }
      } finally {
        stopListening();
      }
    },

    async close() {
      await pods.close();
      await api.close();
    },
  };
}
