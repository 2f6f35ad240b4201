import { setTimeout as delay } from "node:timers/promises";
import { installationSelector } from "@sandgate/container-labels";
import { type Backoff, backoffMs } from "@sandgate/kit/base/backoff";
import type { Logger } from "@sandgate/kit/base/logging";
import { type Api, ApiError } from "@sandgate/kubernetes-api/api";
import type { RawPod } from "@sandgate/kubernetes-api/raw-pod";
import { type Pod, readPod } from "./pod.ts";

const pageSize = 500;
/** The server ends a watch after about as long. */
const watchSeconds = 300;
/** Bookmarks come every minute, so a watch that is silent for longer is dead. */
const silenceMs = 90_000;
const retry: Backoff = { firstMs: 100, lastMs: 3_000 };

/** Gets what a watch reads of an installation's pods. */
export interface PodSink {
  /** All pods of the namespace at this version, by their uids. */
  replace(pods: ReadonlyMap<string, Pod>, version: bigint): void;
  set(pod: Pod): void;
  drop(pod: Pod): void;
  /** Every change up to this version was reported. */
  advance(version: bigint): void;
}

/** The watch of one namespace, which begins at once and reconnects by itself. */
export interface PodWatch {
  readonly namespace: string;
  isLive(): boolean;
  /** Resolves once it is up to date. */
  ready(): Promise<void>;
  /** Why it isn't. */
  failure(): unknown;
  /** Resolves once it has ended, after its signal. */
  ended: Promise<void>;
}

export function watchPods(o: {
  api: Api;
  namespace: string;
  installationId: string;
  sink: PodSink;
  logger: Logger;
  signal: AbortSignal;
}): PodWatch {
  const { api, namespace, installationId, sink, logger, signal } = o;
  const labelSelector = installationSelector(installationId);
  const path = `/api/v1/namespaces/${namespace}/pods`;
  let isLive = false;
  let failure: unknown;
  let live = Promise.withResolvers<void>();

  function setLive(): void {
    if (!isLive && failure !== undefined) logger.info({ namespace }, "the pods can be watched again");
    isLive = true;
    failure = undefined;
    live.resolve();
  }

  function setFailed(error: unknown): void {
    if (isLive || failure === undefined) logger.warn({ err: error, namespace }, "the pods can't be watched");
    if (isLive) live = Promise.withResolvers<void>();
    isLive = false;
    failure = error;
  }

  /** Lists all pods, and returns the version to watch from. */
  async function list(): Promise<string> {
    const listed = new Map<string, Pod>();
    for (let next = ""; ; ) {
      const page = (await api.call({
        method: "GET",
        path,
        query: { labelSelector, limit: String(pageSize), ...(next && { continue: next }) },
        signal,
      })) as { metadata: { resourceVersion: string; continue?: string }; items?: RawPod[] };
      for (const raw of page.items ?? []) {
        const pod = readPod(raw, installationId);
        if (pod) listed.set(pod.uid, pod);
      }
      next = page.metadata.continue ?? "";
      if (next !== "") continue;
      const { resourceVersion } = page.metadata;
      sink.replace(listed, BigInt(resourceVersion));
      return resourceVersion;
    }
  }

  /** Follows changes until the server ends the watch, and returns the version to go on from; undefined: list again. */
  async function follow(from: string): Promise<string | undefined> {
    const silence = new AbortController();
    const timer = setTimeout(() => silence.abort(new Error("the watch of the pods went silent")), silenceMs).unref();
    let version = from;
    try {
      const query = {
        labelSelector,
        watch: "true",
        allowWatchBookmarks: "true",
        resourceVersion: from,
        timeoutSeconds: String(watchSeconds),
      };
      const events = await api.openStream(path, query, AbortSignal.any([signal, silence.signal]));
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
        sink.advance(BigInt(version));
        const pod = type === "BOOKMARK" ? undefined : readPod(object, installationId);
        if (!pod) continue;
        if (type === "DELETED") sink.drop(pod);
        else sink.set(pod);
      }
      return version;
    } finally {
      clearTimeout(timer);
    }
  }

  async function run(): Promise<void> {
    let version: string | undefined;
    let failures = 0;
    while (!signal.aborted) {
      try {
        if (version === undefined) {
          version = await list();
          setLive();
        }
        const startedAt = performance.now();
        version = await follow(version);
        failures = performance.now() - startedAt > 1_000 ? 0 : failures + 1;
      } catch (error) {
        if (signal.aborted) return;
        if (isVersionBad(error)) version = undefined;
        else setFailed(error);
        failures += 1;
      }
      if (failures > 0) await delay(backoffMs(failures, retry), undefined, { signal }).catch(() => {});
    }
  }

  return { namespace, isLive: () => isLive, ready: () => live.promise, failure: () => failure, ended: run() };
}

function isVersionBad(error: unknown): boolean {
  return error instanceof ApiError && (error.status === 410 || /too (large|old) resource version/i.test(error.message));
}
