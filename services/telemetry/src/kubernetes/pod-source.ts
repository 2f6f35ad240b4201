import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "@sandgate/kit/base/logging";
import type { Container, ContainerEvent, NodeSource } from "../collect/container-source.ts";
import type { KubeletSamples } from "./kubelet-samples.ts";
import { listLogFiles } from "./log-files.ts";
import { readPodLog } from "./log-reader.ts";

/** How often new pods are looked for. */
const scanMs = 1_000;
/** The container of a sandbox's pod; others were added by the cluster. */
const containerName = "sandbox";
/** The kubelet's folder of a pod: its namespace, its name, in which the sandbox's id is, and its uid. */
const folderName = /^([^_]+)_(sandgate-([0-9a-f-]{36}))_([^_]+)$/;

interface Pod {
  uid: string;
  sandboxId: string;
  namespace: string;
  name: string;
  /** The container's log; it is there once the container has been started. */
  logFolder: string;
  ran: boolean;
  ended: AbortController;
}

/**
 * The sandboxes' pods of this node, as the kubelet's folder of logs shows them: the API server is not asked. A
 * container has ended once `markEnded` says so.
 */
export function openPodSource(o: {
  /** Where the kubelet has the logs of pods. */
  folder: string;
  /** The namespace of sandboxes; where they are spread over several, those have this name, a hyphen and a number. */
  namespace: string;
  samples: KubeletSamples;
  logger: Logger;
}): NodeSource {
  const { logger } = o;
  const pods = new Map<string, Pod>();
  /** Those whose folder was removed while their log was read, which was then read to its end. */
  const finished = new Map<string, Container>();
  let scanning: Promise<void> | undefined;

  function scan(): Promise<void> {
    scanning ??= readFolders().finally(() => {
      scanning = undefined;
    });
    return scanning;
  }

  async function readFolders(): Promise<void> {
    const present = new Set<string>();
    for (const folder of await readdir(o.folder)) {
      const [, namespace = "", name = "", sandboxId = "", uid = ""] = folderName.exec(folder) ?? [];
      const shard = namespace.startsWith(o.namespace) ? namespace.slice(o.namespace.length) : undefined;
      if (uid === "" || shard === undefined || !/^(-\d+)?$/.test(shard)) continue;
      present.add(uid);
      const known = pods.get(uid);
      const logFolder = join(o.folder, folder, containerName);
      const pod = known ?? { uid, sandboxId, namespace, name, logFolder, ran: false, ended: new AbortController() };
      pod.ran ||= (await listLogFiles(logFolder)).length > 0;
      pods.set(uid, pod);
    }
    for (const uid of pods.keys()) if (!present.has(uid)) pods.delete(uid);
  }

  return {
    async list({ sandboxId }) {
      await scan();
      return [...pods.values()]
        .filter((pod) => sandboxId === undefined || pod.sandboxId === sandboxId)
        .map(toContainer);
    },
    async inspect(containerId) {
      await scan();
      const pod = pods.get(containerId);
      if (pod) return toContainer(pod);
      const last = finished.get(containerId);
      finished.delete(containerId);
      return last;
    },
    async *watch(signal): AsyncGenerator<ContainerEvent> {
      let before = new Set<string>();
      for (;;) {
        await scan();
        const now = new Set([...pods.values()].filter(({ ran }) => ran).map(({ uid }) => uid));
        for (const containerId of now) if (!before.has(containerId)) yield { containerId, action: "start" };
        for (const containerId of before) if (!now.has(containerId)) yield { containerId, action: "destroy" };
        before = now;
        await delay(scanMs, undefined, { signal });
      }
    },
    async *readLogs(container, cursor, { follow, signal }) {
      const pod = pods.get(container.id);
      if (!pod) return;
      yield* readPodLog({ folder: pod.logFolder, ended: pod.ended.signal }, cursor, { follow, logger, signal });
      if (!pod.ended.signal.aborted) finished.set(container.id, { ...container, state: "ended" });
    },
    openSampler(containerId) {
      return async (signal) => {
        const pod = pods.get(containerId);
        if (!pod || pod.ended.signal.aborted) return undefined;
        return o.samples.find({ namespace: pod.namespace, pod: pod.name, container: containerName }, signal);
      };
    },
    async markEnded(sandboxId) {
      await scan();
      const found = [...pods.values()].filter((pod) => pod.sandboxId === sandboxId && pod.ran);
      for (const { ended } of found) ended.abort();
      return found.length > 0;
    },
    problem() {
      // Nobody asks for figures when no sandbox runs, so that the last failure says nothing of now.
      const isAsked = [...pods.values()].some((pod) => stateOf(pod) === "running");
      return isAsked ? o.samples.problem() : undefined;
    },
  };
}

function toContainer(pod: Pod): Container {
  return { id: pod.uid, sandboxId: pod.sandboxId, state: stateOf(pod) };
}

function stateOf({ ran, ended }: Pod): Container["state"] {
  if (!ran) return "created";
  return ended.signal.aborted ? "ended" : "running";
}
