import { DomainError } from "@sandgate/kit/base/domain-error";
import { createWakeup } from "@sandgate/kit/base/wakeup";
import { toRuntimeUnavailable } from "@sandgate/kubernetes-api/api";
import type { ImageAccess } from "../images.ts";
import { type Observation, type RuntimeLifecycle, type RuntimeSpec, SandboxRefused } from "../lifecycle.ts";
import type { Namespaces } from "./namespaces.ts";
import type { Observer } from "./observer.ts";
import type { Pod } from "./pod.ts";
import type { PodRequests } from "./pod-requests.ts";
import type { SecretContent } from "./pod-spec.ts";
import type { Pods } from "./pods.ts";
import type { PullSecrets } from "./pull-secrets.ts";
import { hasEnded, isGone, isNews, mayLackSecret } from "./states.ts";

/**
 * Besides the time that a stop gives, how long a kubelet may take to report the end: until the pod is overdue
 * (states.ts).
 */
const stopSlackMs = 20_000;
/**
 * How long a pod may wait for the scheduler until the API server itself is asked: the watch may be behind.
 */
const slowSchedulingMs = 10_000;
/** How long it may take until a change that another replica has just made is seen. */
const settleMs = 2_000;

interface KubernetesLifecycleOptions {
  namespaces: Namespaces;
  pods: Pods;
  requests: PodRequests;
  observer: Observer;
  pullSecrets: PullSecrets;
}

/** The life of sandboxes as pods. */
export function createKubernetesLifecycle(o: KubernetesLifecycleOptions): RuntimeLifecycle {
  const { namespaces, pods, requests, observer } = o;
  const ensureOnce = createEnsure(o);
  const ensuring = new Map<string, Promise<Observation>>();

  return {
    async check() {
      await namespaces.verify();
      await pods.current();
    },

    ensure(spec) {
      const { sandboxId } = spec;
      const running = ensuring.get(sandboxId) ?? ensureOnce(spec).finally(() => ensuring.delete(sandboxId));
      ensuring.set(sandboxId, running);
      return running;
    },

    async inspect(sandboxId) {
      try {
        const pod = (await pods.find(sandboxId)) ?? (await requests.find(sandboxId));
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

    async stop(sandboxId, graceSeconds) {
      const pod = await pods.find(sandboxId);
      if (!pod || isGone(pod) || hasEnded(pod, observer.now())) return;
      try {
        if (!(await requests.delete(pod, graceSeconds))) return;
      } catch (error) {
        throw toRuntimeUnavailable(error);
      }
      const isOver = (seen: Pod | undefined) =>
        seen === undefined || isReplaced(seen, pod) || hasEnded(seen, observer.now());
      if (!(await pods.waitFor(sandboxId, isOver, graceSeconds * 1000 + stopSlackMs))) {
        throw new DomainError("RUNTIME_UNAVAILABLE", "The sandbox's node did not stop it in time.");
      }
    },

    async remove(sandboxId) {
      const pod = await pods.find(sandboxId);
      if (!pod || isGone(pod)) return;
      try {
        // First: a pod without our finalizer that nobody deletes would stay. A stopped one has been deleted already.
        const isDeleted = pod.deletionAt !== undefined && hasEnded(pod, observer.now());
        if (!isDeleted && !(await requests.delete(pod, 1))) return;
        await requests.removeFinalizer(pod);
      } catch (error) {
        throw toRuntimeUnavailable(error);
      }
      await pods.waitFor(sandboxId, (seen) => seen === undefined || isReplaced(seen, pod), settleMs);
    },

    async list() {
      return [...(await pods.current()).values()].flatMap((pod) => {
        const seen = observer.observe(pod);
        return seen ? [{ sandboxId: seen.sandboxId, phase: seen.phase, createdAt: seen.createdAt }] : [];
      });
    },

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
  };
}

/** Whether a pod is gone: the one that has its name by now is another, or is about to go. */
function isReplaced(seen: Pod, pod: Pod): boolean {
  return seen.uid !== pod.uid || isGone(seen);
}

/** Makes the step that brings a sandbox's pod to run. */
function createEnsure(o: KubernetesLifecycleOptions): (spec: RuntimeSpec) => Promise<Observation> {
  const { namespaces, pods, requests, observer, pullSecrets } = o;

  const findAccess = async (spec: RuntimeSpec): Promise<ImageAccess> =>
    (await spec.findAccess?.()) ?? { registryHost: "", username: "", password: "", volumes: [] };

  const findContent = async (spec: RuntimeSpec, access?: ImageAccess): Promise<SecretContent> => ({
    access: access ?? (await findAccess(spec)),
    env: (await spec.env?.find()) ?? {},
  });

  /** Whether no scheduler has considered the pod for long. */
  function waitsForScheduler({ isGated, scheduledAt, unschedulable, createdAt }: Pod): boolean {
    if (isGated || scheduledAt !== undefined || unschedulable !== undefined) return false;
    return observer.now().getTime() - createdAt.getTime() > slowSchedulingMs;
  }

  /** The sandbox's pod, which is created if there is none, and given to the scheduler. */
  async function preparePod(spec: RuntimeSpec): Promise<Pod> {
    let pod = await pods.find(spec.sandboxId);
    let access: ImageAccess | undefined;
    if (!pod) {
      await namespaces.verifyRecent();
      access = await findAccess(spec);
      pod = await requests.create(spec, access);
    } else if (waitsForScheduler(pod)) {
      pod = await requests.find(spec.sandboxId, [pod.namespace]);
    }
    if (!pod || isGone(pod)) throw beingRemoved();
    if (!pod.isGated || pod.deletionAt !== undefined) return pod;
    await requests.release(pod, await findContent(spec, access));
    return (await pods.find(spec.sandboxId)) ?? pod;
  }

  return async (spec) => {
    try {
      const pod = await preparePod(spec);
      const seen = await observer.observeWithEvents(pod);
      if (!seen) throw beingRemoved();
      if (seen.phase === "running") await requests.settle(pod, spec);
      // The kubelet must probe the port that is meant.
      if (seen.isReady && pod.readinessPort !== spec.readinessPort) return { ...seen, isReady: false };
      const { problem } = seen;
      if (!problem) return seen;
      const isRestored =
        mayLackSecret(pod, problem) && !pod.deletionAt && (await pullSecrets.restore(pod, () => findContent(spec)));
      if (problem.isFinal && !isRestored) throw new SandboxRefused(problem);
      return { ...seen, problem: { ...problem, isFinal: false } };
    } catch (error) {
      throw toRuntimeUnavailable(error);
    }
  };
}

function beingRemoved(): DomainError {
  return new DomainError("RUNTIME_UNAVAILABLE", "The pod of this sandbox is being removed.");
}
