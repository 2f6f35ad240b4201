import { setTimeout as delay } from "node:timers/promises";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import { type Api, ApiError, toRuntimeUnavailable } from "@sandgate/kubernetes-api/api";
import type { RawPod } from "@sandgate/kubernetes-api/raw-pod";
import { type Pod, readPod } from "./pod.ts";
import { createPodCache, type PodCache } from "./pod-cache.ts";
import { type PodSink, type PodWatch, watchPods } from "./pod-watch.ts";

/** How long readers wait at most for a watch that is being opened again. */
const patienceMs = 2_000;

/** All pods of an installation as a watch keeps them: reading them asks nobody. */
export interface Pods extends Pick<PodCache, "listen" | "waitFor"> {
  /** All of them, by the ids of their sandboxes. Throws RUNTIME_UNAVAILABLE while the watch is not up to date. */
  current(): Promise<ReadonlyMap<string, Pod>>;
  /**
   * Undefined: the sandbox has no pod. Throws RUNTIME_UNAVAILABLE as `current` does, unless the sandbox has a pod in a
   * namespace whose watch is up to date.
   */
  find(sandboxId: string): Promise<Pod | undefined>;
  /**
   * Takes over what the server answered, unless something newer is known. False: the pod is not of this installation.
   */
  apply(raw: RawPod): boolean;
  /** Drops a pod that a write found to be gone. */
  forget(pod: Pod): void;
  close(): Promise<void>;
}

/** Opens one watch for each namespace, with the first question. */
export function createPods(o: {
  api: Api;
  namespaces: readonly string[];
  installationId: string;
  logger: Logger;
}): Pods {
  const { api, installationId, logger } = o;
  const cache = createPodCache();
  const { pods } = cache;
  /** By namespace: up to which version every change is known. */
  const syncedVersions = new Map<string, bigint>();
  const closing = new AbortController();
  let watches: PodWatch[] | undefined;
  /** Of all who ask meanwhile: thousands do, again and again, while the API server is away. */
  let waitForLive: Promise<void> | undefined;

  function sinkOf(namespace: string): PodSink {
    return {
      replace(listed, version) {
        // What was restored from a backup counts on from there.
        const isRestored = version < (syncedVersions.get(namespace) ?? 0n);
        for (const pod of [...pods.values()]) {
          if (pod.namespace !== namespace) continue;
          // A pod that was made since is none that the list should have had.
          if (isRestored || (!listed.has(pod.uid) && pod.version <= version)) cache.drop(pod);
        }
        syncedVersions.set(namespace, version);
        for (const pod of listed.values()) cache.set(pod);
      },
      set: cache.set,
      drop: cache.drop,
      advance: (version) => syncedVersions.set(namespace, version),
    };
  }

  async function awaitLive(running: readonly PodWatch[]): Promise<void> {
    const ready = Promise.all(running.map((watch) => watch.ready())).then(() => true);
    const patience = new AbortController();
    const tooLong = delay(patienceMs, false, { signal: patience.signal }).catch(() => false);
    const isReady = await Promise.race([ready, tooLong]);
    patience.abort();
    if (isReady) return;
    const cause = running.map((watch) => watch.failure()).find((failure) => failure !== undefined);
    if (cause instanceof ApiError) throw toRuntimeUnavailable(cause);
    throw new DomainError("RUNTIME_UNAVAILABLE", "The Kubernetes API server can't be reached.", { cause });
  }

  async function current(): Promise<ReadonlyMap<string, Pod>> {
    watches ??= o.namespaces.map((namespace) =>
      watchPods({ api, namespace, installationId, sink: sinkOf(namespace), logger, signal: closing.signal }),
    );
    // Nearly always, and asked several times for each change of a pod.
    if (watches.every((watch) => watch.isLive())) return pods;
    waitForLive ??= awaitLive(watches).finally(() => {
      waitForLive = undefined;
    });
    await waitForLive;
    return pods;
  }

  return {
    current,
    async find(sandboxId) {
      const known = pods.get(sandboxId);
      const isUpToDate = watches?.some(({ namespace, isLive }) => namespace === known?.namespace && isLive());
      return isUpToDate ? known : (await current()).get(sandboxId);
    },
    waitFor: cache.waitFor,
    apply(raw) {
      const pod = readPod(raw, installationId);
      if (!pod) return false;
      // A pod that the watch doesn't know, although it has come further, is gone meanwhile.
      if (pods.has(pod.sandboxId) || pod.version > (syncedVersions.get(pod.namespace) ?? -1n)) cache.set(pod);
      return true;
    },
    forget: cache.drop,
    listen: cache.listen,
    async close() {
      closing.abort();
      await Promise.all(watches?.map(({ ended }) => ended) ?? []);
    },
  };
}
