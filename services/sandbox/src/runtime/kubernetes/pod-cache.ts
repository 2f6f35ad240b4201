import type { Pod } from "./pod.ts";

export type PodListener = (sandboxId: string, pod: Pod | undefined, before?: Pod) => void;

/** Pods by the ids of their sandboxes, with those who wait for their changes. */
export interface PodCache {
  readonly pods: ReadonlyMap<string, Pod>;
  /** Takes a pod over, unless something newer is known. */
  set(pod: Pod): void;
  /** Drops this pod, but none that has taken its place. */
  drop(pod: Pod): void;
  /**
   * Calls back with each change of a sandbox's pod, and what it was before; undefined stands for none. Returns how to
   * end that.
   */
  listen(onChange: PodListener): () => void;
  /** Waits until the sandbox's pod, or its absence, meets the condition. False: that took too long. */
  waitFor(sandboxId: string, condition: (pod: Pod | undefined) => boolean, timeoutMs: number): Promise<boolean>;
}

export function createPodCache(): PodCache {
  const pods = new Map<string, Pod>();
  const listeners = new Set<PodListener>();
  /** By the ids of the sandboxes that they wait for: thousands may be stopped at once. */
  const waiting = new Map<string, Set<() => void>>();

  function notify(sandboxId: string, pod: Pod | undefined, before: Pod | undefined): void {
    for (const listener of listeners) listener(sandboxId, pod, before);
    for (const check of waiting.get(sandboxId) ?? []) check();
  }

  return {
    pods,

    /**
     * Versions are those of the whole cluster. A sandbox that has two pods has the second because the first is gone.
     */
    set(pod) {
      const known = pods.get(pod.sandboxId);
      if (known && known.version >= pod.version) return;
      pods.set(pod.sandboxId, pod);
      notify(pod.sandboxId, pod, known);
    },

    drop({ sandboxId, uid }) {
      const known = pods.get(sandboxId);
      if (known?.uid !== uid) return;
      pods.delete(sandboxId);
      notify(sandboxId, undefined, known);
    },

    listen(onChange) {
      listeners.add(onChange);
      return () => listeners.delete(onChange);
    },

    waitFor(sandboxId, condition, timeoutMs) {
      return new Promise((resolve) => {
        const checks = waiting.get(sandboxId) ?? new Set();
        const end = (isMet: boolean) => {
          clearTimeout(timer);
          checks.delete(check);
          if (checks.size === 0) waiting.delete(sandboxId);
          resolve(isMet);
        };
        const check = () => {
          if (condition(pods.get(sandboxId))) end(true);
        };
        const timer = setTimeout(() => end(condition(pods.get(sandboxId))), timeoutMs);
        waiting.set(sandboxId, checks.add(check));
        check();
      });
    },
  };
}
