import { containerNameOf, identityOf, installationSelector } from "@sandgate/container-labels";
import type { Logger } from "@sandgate/kit/base/logging";
import type { Metrics } from "@sandgate/kit/base/metrics";
import { createWakeup } from "@sandgate/kit/base/wakeup";
import { ignoreStatus, openApi } from "@sandgate/kubernetes-api/api";
import { containerName, type RawPod } from "@sandgate/kubernetes-api/raw-pod";
import type { Container, ContainerEvent, ContainerSource } from "../collect/container-source.ts";
import { type OpenLog, readApiLog } from "./api-log-reader.ts";
import { countSamples, createSamples, type KubeletSamples, maxBytes } from "./kubelet-samples.ts";

const pageSize = 500;
/** The server ends a watch after about as long. */
const watchSeconds = 300;
/** How long the kubelet's figures may take. */
const figuresTimeoutMs = 10_000;
const tick = 1_000;
/** Logs are always wanted; a platform may leave the right to figures out. */
const rights = { logs: "get pods/log", figures: "get nodes/proxy" };

interface Pod extends Container {
  namespace: string;
  name: string;
  nodeName: string | undefined;
}

interface ApiPodsOptions {
  /** `kubernetes:` in a pod, or `kubernetes:<path of a kubeconfig>`. */
  address: string;
  /** Those of the sandboxes. */
  namespaces: readonly string[];
  installationId: string;
  logger: Logger;
  metrics: Metrics;
}

/**
 * The pods of an installation, with their logs and figures, through the API server: for a platform that no collector on
 * the nodes can send to. It needs the rights to get, list and watch pods, to get pods/log, and for figures nodes/proxy.
 * Nothing is connected before the first call.
 */
export function openApiPods(o: ApiPodsOptions): ContainerSource {
  const { namespaces, installationId, logger } = o;
  const api = openApi(o.address, { writesPerSecond: 1, metrics: o.metrics });
  const labelSelector = installationSelector(installationId);
  const pods = new Map<string, Pod>();
  /** By the right that is missing. */
  const missing = new Set<string>();

  /** Undefined where a right is missing, which is logged once. */
  async function unlessForbidden<T>(right: string, call: Promise<T>): Promise<T | undefined> {
    const answered = await ignoreStatus([403], call);
    if (answered !== undefined) missing.delete(right);
    else if (!missing.has(right)) {
      missing.add(right);
      logger.warn({ right }, "the API server gives out no logs or figures of sandboxes: a right is missing");
    }
    return answered;
  }

  const figures = createFigures(o, (path, signal) => unlessForbidden(rights.figures, api.openText(path, {}, signal)));

  function remember(raw: RawPod): Pod | undefined {
    const pod = toPod(raw, installationId);
    if (pod) pods.set(pod.id, pod);
    return pod;
  }

  async function listNamespace(namespace: string, signal: AbortSignal): Promise<Pod[]> {
    const found: Pod[] = [];
    for (let next = ""; ; ) {
      const query = { labelSelector, limit: String(pageSize), ...(next && { continue: next }) };
      const page = (await api.call({ method: "GET", path: podsOf(namespace), query, signal })) as {
        metadata: { continue?: string };
        items?: RawPod[];
      };
      found.push(...(page.items ?? []).flatMap((raw) => remember(raw) ?? []));
      next = page.metadata.continue ?? "";
      if (next === "") return found;
    }
  }

  async function find(namespace: string, name: string, signal: AbortSignal): Promise<Pod | undefined> {
    const path = `${podsOf(namespace)}/${name}`;
    const raw = await ignoreStatus([404], api.call({ method: "GET", path, signal }));
    return raw === undefined ? undefined : remember(raw as RawPod);
  }

  /** What a change of a pod means for its container. */
  function* eventsOf(type: string, raw: RawPod): Generator<ContainerEvent> {
    const containerId = raw.metadata.uid;
    const before = pods.get(containerId)?.state ?? "created";
    const state = remember(raw)?.state ?? "created";
    if (before === "created" && state !== "created") yield { containerId, action: "start" };
    if (before !== "ended" && state === "ended") yield { containerId, action: "die" };
    if (type !== "DELETED") return;
    pods.delete(containerId);
    yield { containerId, action: "destroy" };
  }

  async function watchNamespace(namespace: string, signal: AbortSignal, push: (event: ContainerEvent) => void) {
    // Without a version to begin at, it begins with all pods that are there.
    const query = { labelSelector, watch: "true", timeoutSeconds: String(watchSeconds) };
    for await (const event of await api.openStream(podsOf(namespace), query, signal)) {
      const { type, object } = event as { type: string; object: RawPod & { message?: string } };
      if (type === "ERROR") throw new Error(`the watch of the pods ended: ${object.message}`);
      for (const each of eventsOf(type, object)) push(each);
    }
  }

  return {
    async list({ sandboxId, signal }) {
      if (sandboxId !== undefined) {
        const name = containerNameOf(sandboxId);
        const found = await Promise.all(namespaces.map((namespace) => find(namespace, name, signal)));
        return found.filter((pod) => pod !== undefined);
      }
      // One that starts while the list is read may not be in it.
      const before = [...pods.keys()];
      const found = (await Promise.all(namespaces.map((namespace) => listNamespace(namespace, signal)))).flat();
      const present = new Set(found.map(({ id }) => id));
      for (const id of before) if (!present.has(id)) pods.delete(id);
      figures.keep(new Set(found.flatMap(({ nodeName }) => nodeName ?? [])));
      return found;
    },
    async inspect(containerId, signal) {
      const known = pods.get(containerId);
      const pod = known && (await find(known.namespace, known.name, signal));
      return pod?.id === containerId ? pod : undefined;
    },
    async *watch(signal) {
      const over = new AbortController();
      const either = AbortSignal.any([signal, over.signal]);
      const events: ContainerEvent[] = [];
      const wakeup = createWakeup();
      const push = (event: ContainerEvent) => {
        events.push(event);
        wakeup.wake();
      };
      // When one ends, they all begin anew.
      const watching = Promise.race(namespaces.map((namespace) => watchNamespace(namespace, either, push)));
      let isOver = false;
      const end = () => {
        isOver = true;
        wakeup.wake();
      };
      watching.then(end, end);
      try {
        while (!isOver && !signal.aborted) {
          yield* events.splice(0);
          await wakeup.wait(tick, signal);
        }
        yield* events.splice(0);
        signal.throwIfAborted();
        await watching;
      } finally {
        over.abort();
      }
    },
    async *readLogs({ id }, cursor, o) {
      const pod = pods.get(id);
      if (!pod) return;
      const path = `${podsOf(pod.namespace)}/${pod.name}/log`;
      const open: OpenLog = (query, signal) => unlessForbidden(rights.logs, api.openText(path, query, signal));
      yield* readApiLog(open, cursor, o);
    },
    openSampler: (containerId) => async (signal) => {
      const pod = pods.get(containerId);
      if (pod?.state !== "running" || pod.nodeName === undefined) return undefined;
      const { namespace, name, nodeName } = pod;
      return figures.of(nodeName).find({ namespace, pod: name, container: containerName }, signal);
    },
    problem: () => (missing.has(rights.logs) ? `the API server forbids: ${rights.logs}` : undefined),
  };
}

function podsOf(namespace: string): string {
  return `/api/v1/namespaces/${namespace}/pods`;
}

/** Undefined for one of another installation. */
function toPod({ metadata, spec, status }: RawPod, installationId: string): Pod | undefined {
  const identity = identityOf(metadata.labels ?? {});
  if (identity?.installationId !== installationId) return undefined;
  return {
    id: metadata.uid,
    sandboxId: identity.sandboxId,
    namespace: metadata.namespace,
    name: metadata.name,
    nodeName: spec.nodeName,
    state: stateOf(status),
  };
}

/** One that could not be started has no log. */
function stateOf(status: RawPod["status"]): Container["state"] {
  const { running, terminated } = status?.containerStatuses?.find(({ name }) => name === containerName)?.state ?? {};
  if (running) return "running";
  const startedAt = terminated?.startedAt ?? "1970-";
  return startedAt.startsWith("1970-") || startedAt.startsWith("0001-") ? "created" : "ended";
}

/**
 * The figures of each node's kubelet, through the API server.
 *
 * @param open resolves with what a path answers; undefined: it is forbidden
 */
function createFigures(
  { logger, metrics }: Pick<ApiPodsOptions, "logger" | "metrics">,
  open: (path: string, signal: AbortSignal) => Promise<AsyncIterable<Buffer> | undefined>,
) {
  const count = countSamples(metrics, "api-server");
  const nodes = new Map<string, KubeletSamples>();

  async function ask(nodeName: string): Promise<string> {
    const path = `/api/v1/nodes/${nodeName}/proxy/metrics/resource`;
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of (await open(path, AbortSignal.timeout(figuresTimeoutMs))) ?? []) {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes > maxBytes) throw new Error(`the kubelet of ${nodeName} answered with more than ${maxBytes} bytes`);
    }
    return Buffer.concat(chunks).toString("utf8");
  }

  return {
    of(nodeName: string): KubeletSamples {
      const known =
        nodes.get(nodeName) ?? createSamples({ ask: () => ask(nodeName), count, logger: logger.child({ nodeName }) });
      nodes.set(nodeName, known);
      return known;
    },
    /** Forgets all other nodes. */
    keep(names: ReadonlySet<string>): void {
      for (const name of nodes.keys()) if (!names.has(name)) nodes.delete(name);
    },
  };
}
