import { setTimeout as delay } from "node:timers/promises";
import { labelFilter } from "@sandgate/docker-engine/containers";
import { type Backoff, backoffMs } from "@sandgate/kit/base/backoff";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import { type Api, ApiError, toRuntimeUnavailable } from "./api.ts";
import { type Pod, type RawPod, readPod } from "./pod.ts";

const pageSize = 500;
/** The server ends a watch after about as long. */
const watchSeconds = 300;
/** Bookmarks come every minute, so a watch that says nothing for longer is dead. */
const silenceMs = 90_000;
const retry: Backoff = { firstMs: 100, lastMs: 3_000 };
/** How long readers wait at most for a watch that is being opened again. */
const patienceMs = 2_000;

type PodListener = (sandboxId: string, pod: Pod | undefined, before?: Pod) => void;

/** All pods of an installation as a watch keeps them: reading them asks nobody. */
export interface Pods {
  /** Those by the ids of their sandboxes. Throws RUNTIME_UNAVAILABLE while the watch is not up to date. */
  current(): Promise<ReadonlyMap<string, Pod>>;
  /** Undefined: the sandbox has none. Throws as `current`, unless it has one in a namespace whose watch is up to date. */
  find(sandboxId: string): Promise<Pod | undefined>;
  /**
   * Waits until the sandbox's pod, or its absence, is as wanted. False: that took too long. It goes on waiting while the API server is away.
   */
  until(sandboxId: string, isSo: (pod: Pod | undefined) => boolean, timeoutMs: number): Promise<boolean>;
  /** Takes over what the server answered, unless something newer is known. False: the pod is not of this installation. */
  apply(raw: RawPod): boolean;
  /** A write found that it is gone. */
  forget(pod: Pod): void;
  /** Calls back with each change of a sandbox's pod, and what it was before; undefined stands for none. Answers how to end that. */
  listen(onChange: PodListener): () => void;
  close(): Promise<void>;
}

/** One watch for each namespace, begun with the first question. */
export function createPods(o: {
  api: Api;
  namespaces: readonly string[];
  installationId: string;
  logger: Logger;
}): Pods {
  const { api, installationId, logger } = o;
  const pods = new Map<string, Pod>();
  /** By namespace: up to which version everything was told. */
  const told = new Map<string, bigint>();
  const listeners = new Set<PodListener>();
  /** By the ids of the sandboxes that they wait for: thousands may be stopped at once. */
  const waiting = new Map<string, Set<() => void>>();
  const closing = new AbortController();
  let watches: NamespaceWatch[] | undefined;
  /** Of all who ask meanwhile: thousands do, again and again, while the API server is away. */
  let waitForLive: Promise<void> | undefined;

  /** Versions are those of the whole cluster. A sandbox that has two pods has the second because the first is gone. */
  function set(pod: Pod): void {
    const known = pods.get(pod.sandboxId);
    if (known && known.version >= pod.version) return;
    pods.set(pod.sandboxId, pod);
    tell(pod.sandboxId, pod, known);
  }

  function drop({ sandboxId, uid }: Pod): void {
    const known = pods.get(sandboxId);
    if (known?.uid !== uid) return;
    pods.delete(sandboxId);
    tell(sandboxId, undefined, known);
  }

  function tell(sandboxId: string, pod: Pod | undefined, before: Pod | undefined): void {
    for (const listener of listeners) listener(sandboxId, pod, before);
    for (const check of waiting.get(sandboxId) ?? []) check();
  }

  interface NamespaceWatch {
    namespace: string;
    isLive(): boolean;
    /** Resolves once it is up to date. */
    ready(): Promise<void>;
    failure(): unknown;
    ended: Promise<void>;
  }

  function watchNamespace(namespace: string): NamespaceWatch {
    const path = `/api/v1/namespaces/${namespace}/pods`;
    const query = { labelSelector: labelFilter(installationId).join(",") };
    let isLive = false;
    let failure: unknown;
    let live = Promise.withResolvers<void>();

    function setLive(): void {
      if (!isLive && failure !== undefined) logger.info({ namespace }, "the pods can be watched again");
      isLive = true;
      failure = undefined;
      live.resolve();
    }

    /** Lists all, and answers from which version on to watch. */
    async function list(): Promise<string> {
      const listed = new Map<string, Pod>();
      let next = "";
      for (;;) {
        const page = (await api.call({
          method: "GET",
          path,
          query: { ...query, limit: String(pageSize), ...(next && { continue: next }) },
          signal: closing.signal,
        })) as { metadata: { resourceVersion: string; continue?: string }; items?: RawPod[] };
        for (const raw of page.items ?? []) {
          const pod = readPod(raw, installationId);
          if (pod) listed.set(pod.uid, pod);
        }
        next = page.metadata.continue ?? "";
        if (next !== "") continue;
        replace(listed, BigInt(page.metadata.resourceVersion));
        return page.metadata.resourceVersion;
      }
    }

    function replace(listed: ReadonlyMap<string, Pod>, version: bigint): void {
      // What was restored from a backup counts on from there.
      const isRestored = version < (told.get(namespace) ?? 0n);
      for (const pod of [...pods.values()]) {
        if (pod.namespace !== namespace) continue;
        // One that was made since is none that the list should have had.
        if (isRestored || (!listed.has(pod.uid) && pod.version <= version)) drop(pod);
      }
      told.set(namespace, version);
      for (const pod of listed.values()) set(pod);
    }

    /** Follows changes until the server ends the watch, and answers from which version on to go on; undefined: list again. */
    async function follow(from: string): Promise<string | undefined> {
      const silence = new AbortController();
      const signal = AbortSignal.any([closing.signal, silence.signal]);
      const timer = setTimeout(() => silence.abort(new Error("the watch of the pods went silent")), silenceMs).unref();
      let version = from;
      try {
        const events = await api.openStream(
          path,
          {
            ...query,
            watch: "true",
            allowWatchBookmarks: "true",
            resourceVersion: from,
            timeoutSeconds: String(watchSeconds),
          },
          signal,
        );
        setLive();
        for await (const event of events) {
          timer.refresh();
          const { type, object } = event as { type: string; object: RawPod & { code?: number; message?: string } };
          if (type === "ERROR") {
            if (object.code === 410) return undefined;
            throw new Error(`the watch of the pods ended: ${object.message}`);
          }
          // Only in a cluster that was restored from a backup.
          if (BigInt(object.metadata.resourceVersion) < BigInt(version)) return undefined;
          version = object.metadata.resourceVersion;
          told.set(namespace, BigInt(version));
          if (type === "BOOKMARK") continue;
          const pod = readPod(object, installationId);
          if (!pod) continue;
          if (type === "DELETED") drop(pod);
          else set(pod);
        }
        return version;
      } finally {
        clearTimeout(timer);
      }
    }

    async function run(): Promise<void> {
      let version: string | undefined;
      let failures = 0;
      while (!closing.signal.aborted) {
        try {
          if (version === undefined) {
            version = await list();
            setLive();
          }
          const startedAt = performance.now();
          version = await follow(version);
          failures = performance.now() - startedAt > 1_000 ? 0 : failures + 1;
        } catch (error) {
          if (closing.signal.aborted) return;
          const isVersionBad =
            error instanceof ApiError &&
            (error.status === 410 || /too (large|old) resource version/i.test(error.message));
          if (isVersionBad) version = undefined;
          else {
            if (isLive || failure === undefined) logger.warn({ err: error, namespace }, "the pods can't be watched");
            if (isLive) live = Promise.withResolvers<void>();
            isLive = false;
            failure = error;
          }
          failures += 1;
        }
        if (failures > 0)
          await delay(backoffMs(failures, retry), undefined, { signal: closing.signal }).catch(() => {});
      }
    }

    const ended = run();
    return {
      namespace,
      ended,
      isLive: () => isLive,
      failure: () => failure,
      ready: () => live.promise,
    };
  }

  async function awaitLive(running: readonly NamespaceWatch[]): Promise<void> {
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
    watches ??= o.namespaces.map(watchNamespace);
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
    until(sandboxId, isSo, timeoutMs) {
      return new Promise((resolve) => {
        const checks = waiting.get(sandboxId) ?? new Set();
        const end = (isMet: boolean) => {
          clearTimeout(timer);
          checks.delete(check);
          if (checks.size === 0) waiting.delete(sandboxId);
          resolve(isMet);
        };
        const check = () => {
          if (isSo(pods.get(sandboxId))) end(true);
        };
        const timer = setTimeout(() => end(isSo(pods.get(sandboxId))), timeoutMs);
        waiting.set(sandboxId, checks.add(check));
        check();
      });
    },
    apply(raw) {
      const pod = readPod(raw, installationId);
      if (!pod) return false;
      // One that the watch doesn't know, although it has come further, is gone meanwhile.
      if (pods.has(pod.sandboxId) || pod.version > (told.get(pod.namespace) ?? -1n)) set(pod);
      return true;
    },
    forget: drop,
    listen(onChange) {
      listeners.add(onChange);
      return () => listeners.delete(onChange);
    },
    async close() {
      closing.abort();
      await Promise.all(watches?.map(({ ended }) => ended) ?? []);
    },
  };
}
