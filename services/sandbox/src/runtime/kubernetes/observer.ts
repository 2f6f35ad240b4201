import type { Api } from "@sandgate/kubernetes-api/api";
import type { Observation } from "../lifecycle.ts";
import type { Pod } from "./pod.ts";
import type { PodEvents } from "./pod-events.ts";
import { evictionOf, observationOf, setupProblemOf } from "./states.ts";

/** How long a container must have run when its image has no program to exec. Pods say when it started to the second. */
const minUptimeMs = 2_000;
/** How long a pod that has a node may take for its network and volumes, until its events are looked through. */
const slowSetupMs = 10_000;

/** What the adapter reports about pods. */
export interface Observer {
  /** The current time by the API server's clock, by which pods are judged. */
  now(): Date;
  /** What the pod itself shows, by our clock. Undefined for a pod that is being removed. */
  observe(pod: Pod): Observation | undefined;
  /** Adds what only the pod's events show. Throws what the API server refuses. */
  observeWithEvents(pod: Pod): Promise<Observation | undefined>;
  /**
   * Whether its startup probe has succeeded, or its image has no program to run for one. Throws what the API server
   * refuses.
   */
  isReady(pod: Pod): Promise<boolean>;
}

export function createObserver({ api, events }: { api: Pick<Api, "clockAheadMs">; events: PodEvents }): Observer {
  const now = () => new Date(Date.now() + api.clockAheadMs());

  function observe(pod: Pod): Observation | undefined {
    const seen = observationOf(pod, now());
    const aheadMs = api.clockAheadMs();
    if (!seen || aheadMs === 0) return seen;
    const { createdAt, startedAt } = seen;
    const toOurs = (at: Date) => new Date(at.getTime() - aheadMs);
    return { ...seen, createdAt: toOurs(createdAt), ...(startedAt && { startedAt: toOurs(startedAt) }) };
  }

  /** Adds why a kubelet can't set a pod up. */
  async function withSetupProblem(pod: Pod, seen: Observation): Promise<Observation> {
    const { scheduledAt, isSetUp } = pod;
    if (seen.problem || !scheduledAt || isSetUp !== false) return seen;
    if (now().getTime() - scheduledAt.getTime() < slowSetupMs) return seen;
    const last = (await events.read(pod, ["FailedMount", "FailedCreatePodSandBox"], slowSetupMs)).at(-1);
    return last === undefined ? seen : { ...seen, problem: setupProblemOf(last) };
  }

  return {
    now,
    observe,
    async observeWithEvents(pod) {
      const seen = observe(pod);
      if (seen?.phase === "created") return withSetupProblem(pod, seen);
      // A container that exited with 0 when it was evicted has succeeded: only an event says why.
      if (seen?.phase !== "exited" || pod.phase !== "Succeeded" || seen.failure) return seen;
      const [message] = await events.read(pod, ["Evicted"]);
      return message === undefined ? seen : { ...seen, failure: evictionOf(message) };
    },
    async isReady(pod) {
      const seen = observationOf(pod, now());
      if (seen?.phase !== "running" || pod.awaitsHelper) return false;
      if (pod.container?.isStarted) return true;
      if (pod.readinessPort !== undefined) return false;
      if (now().getTime() - (seen.startedAt?.getTime() ?? 0) < minUptimeMs) return false;
      const messages = await events.read(pod, ["Unhealthy"]);
      return messages.some((message) =>
        /executable file (?:\S+ )?not found|no such file or directory|not found in \$PATH/i.test(message),
      );
    },
  };
}
