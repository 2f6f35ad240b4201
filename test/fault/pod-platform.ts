import { type ApiProxy, openApiProxy } from "@sandgate/test-support/api-proxy";
import {
  type ClusterOptions,
  type OwnCluster,
  openTestCluster,
  probeCluster,
  type TestCluster,
} from "@sandgate/test-support/cluster";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { probeRegistry, startRegistry, type TestRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import { expect } from "vitest";
import { type Answer, expectStatus } from "../conformance/client.ts";
import { deployed } from "../deploy/cluster-rights.ts";
import { isRemoved, linesOf, podPath, reaches, readPod, registerImage } from "../e2e/pods.ts";
import { unlimitedSandboxes } from "../platform/limits.ts";
import { lineWriter } from "../platform/line-writer.ts";
import type { TestPlatform } from "../platform/local.ts";
import { startOnCluster } from "../platform/on-cluster.ts";
import { type Operator, openOperator } from "../platform/operator.ts";
import { acknowledgedIn, type Journal } from "./journal.ts";

/** Writes a line every fifth of a second for as long as it runs, and ends with 0 on SIGTERM. */
export const writer = ["sh", "-c", lineWriter({ everySeconds: 0.2 })];

const credential = { username: "alice", password: "correct horse" };

/** What is read here of a pod. */
export interface PodObject {
  metadata: { name: string; uid: string; finalizers?: string[]; deletionTimestamp?: string };
  spec: { activeDeadlineSeconds?: number; nodeName?: string };
  status: { phase?: string; startTime?: string };
}

/** A platform on a cluster with one node, whose sandboxes are pods. */
export interface OnCluster {
  cluster: TestCluster;
  own: OwnCluster;
  operator: Operator;
  /** Registers an image of busybox with this command as a global default image. */
  register(command: readonly string[], changes?: object): Promise<string>;
  podOf(sandboxId: string): Promise<PodObject>;
  listPods(): Promise<PodObject[]>;
  /** Waits until the sandbox is in this state for this reason. */
  reaches(sandboxId: string, state: string, reason: string | null): Promise<Answer["body"]>;
  /** Waits until its pod is gone. */
  isRemoved(sandboxId: string): Promise<void>;
  linesOf(sandboxId: string): Promise<string[]>;
}

/** Whether a cluster can be started here whose programs may be killed. Says so when it can't. */
export function requireOwnCluster(): Promise<boolean> {
  return requireServer("kubernetes", async () => {
    if (process.env.KUBECONFIG) throw new Error("the cluster at KUBECONFIG is not the suite's own: unset it");
    await probeCluster();
    await probeRegistry();
  });
}

/** In one process, which collects the node's logs, with the rights of deploy/kubernetes. */
export interface PodPlatform extends OnCluster {
  /** Between the platform and the API server. */
  proxy: ApiProxy;
  registry: TestRegistry;
  platform: TestPlatform;
  /** Registers one with a credential in a registry of its own, and starts that. */
  registerPrivate(command: readonly string[]): Promise<{ imageId: string; stop(): Promise<void> }>;
  /**
   * Lets go of the pods of a namespace that is being deleted, as an admin, and waits until it is gone: the rights in it
   * went first.
   */
  finishNamespace(): Promise<void>;
  stop(): Promise<void>;
}

/** With a cluster that notices within 8 s that its node is gone. */
export async function startPodPlatform(
  o: { settings?: Record<string, string>; cluster?: ClusterOptions } = {},
): Promise<PodPlatform> {
  const closing = new AsyncDisposableStack();
  try {
    return await fillPodPlatform(closing, o);
  } catch (error) {
    await closing.disposeAsync();
    throw error;
  }
}

async function fillPodPlatform(
  closing: AsyncDisposableStack,
  o: { settings?: Record<string, string>; cluster?: ClusterOptions },
): Promise<PodPlatform> {
  const cluster = closing.adopt(
    await openTestCluster({
      controllerManagerArgs: ["--node-monitor-period=1s", "--node-monitor-grace-period=8s"],
      ...o.cluster,
      kubelet: { nodeStatusUpdateFrequency: "2s", nodeLeaseDurationSeconds: 4, ...o.cluster?.kubelet },
    }),
    (each) => each.stop(),
  );
  const { own } = cluster;
  if (!own) throw new Error("unreachable: the cluster was started here");
  const registry = closing.adopt(await startRegistry(), (each) => each.stop());
  const proxy = closing.adopt(
    await openApiProxy({
      server: cluster.server,
      certificate: own.certificates.server,
      certificateAuthority: own.certificateAuthority,
    }),
    (each) => each.close(),
  );
  const platform = closing.adopt(
    await startOnCluster(cluster, {
      proxy,
      collects: true,
      settings: { ...unlimitedSandboxes, ...o.settings },
    }),
    (each) => each.stop(),
  );
  const operator = await openOperator(platform);

  return {
    ...operateOn({ cluster, own, operator, registry: registry.host }),
    proxy,
    registry,
    platform,
    async registerPrivate(command) {
      const own = await startRegistry({ users: [credential] });
      const { host } = own;
      const reference = await pushImage(await makeImage({ command }), { host, repository: "team/private", credential });
      const made = await operator.post("/registries", { name: host, url: host, ...credential }, operator.as);
      const body = { name: host, image: reference, memory_mb: 256, registry_id: expectStatus(made, 201).id };
      const imageId = expectStatus(await operator.post("/sandbox-images", body, operator.as), 201).id;
      return { imageId, stop: () => own.stop() };
    },
    async finishNamespace() {
      const letGo = ["--type=merge", '--patch={"metadata":{"finalizers":null}}'];
      await until(
        async () => {
          const names = await cluster.kubectl("get", "pods", `--namespace=${deployed.sandboxes}`, "--output=name");
          for (const name of names.split("\n").filter(Boolean))
            await cluster.kubectl("patch", `--namespace=${deployed.sandboxes}`, name, ...letGo);
          await expect(cluster.call("GET", `/api/v1/namespaces/${deployed.sandboxes}`)).rejects.toThrow("404");
        },
        { intervalMs: 500 },
      );
    },
    stop: () => closing.disposeAsync(),
  };
}

/** @param o.registry `host:port` of a registry that the platform and the node pull from */
export function operateOn(o: {
  cluster: TestCluster;
  own: OwnCluster;
  operator: Operator;
  registry: string;
}): OnCluster {
  const { cluster, own, operator } = o;
  return {
    cluster,
    own,
    operator,
    register: (command, changes) => registerImage(o, command, changes),
    podOf: async (sandboxId) => (await readPod(o, sandboxId)) as PodObject,
    listPods: async () => ((await cluster.call("GET", podPath())) as { items: PodObject[] }).items,
    reaches: (sandboxId, state, reason) => reaches(o, sandboxId, state, reason),
    isRemoved: (sandboxId) => isRemoved(o, sandboxId),
    linesOf: (sandboxId) => linesOf(o, sandboxId),
  };
}

/**
 * Expects that the callers met nothing that no fault explains, and that records, pods and logs soon agree with them.
 */
export async function expectPodsConsistent(journal: Journal, on: OnCluster): Promise<void> {
  expect(journal.violations).toEqual([]);
  await expect.poll(() => findPodProblems(journal, on), { interval: 1_000, timeout: 300_000 }).toEqual([]);
}

/** Deletes the callers' workspaces, and waits until no pod is left. */
export async function removeWorkspaces(journal: Journal, on: OnCluster): Promise<void> {
  const { operator } = on;
  for (const { id, gone } of acknowledgedIn(journal, "workspace")) {
    if (gone !== "yes") await operator.delete(`/workspaces/${id}`, { token: operator.as.token });
  }
  await until(async () => expect(await on.listPods()).toEqual([]), { intervalMs: 500 });
}

/**
 * Compares records, pods and logs with the journal of the clients, whose sandboxes run `writer`. Answers the
 * differences, in one line each: none once the platform is idle.
 */
export async function findPodProblems(journal: Journal, on: OnCluster): Promise<string[]> {
  const { operator, cluster } = on;
  const problems: string[] = [];
  const running = new Set<string>();
  for (const thing of acknowledgedIn(journal, "sandbox")) {
    const { id, name, gone } = thing;
    const as = { token: operator.as.token, workspace: thing.workspace?.id };
    const answer = await operator.get(`/sandboxes/${id}`, as);
    // It goes with its workspace.
    if (answer.status !== 200 && thing.workspace?.gone !== "no") continue;
    const { state, state_reason: reason, message } = expectStatus(answer, 200);
    if (state === "ready") {
      running.add(`sandgate-${id}`);
      if (gone === "yes") problems.push(`${name} was stopped and runs`);
    } else if (state !== "stopped" || reason !== "stopped_by_user" || gone === "no") {
      problems.push(`${name} is ${state}: ${reason} ${message}`);
    }
    const monitored = await operator.get(`/sandbox/monitoring/${id}?include=logs&limit=10000`, as);
    const lines: string[] = expectStatus(monitored, 200).logs.map(({ log }: { log: string }) => log);
    const odd = lines.findIndex((line, index) => line !== `line ${index + 1}`);
    if (odd >= 0) problems.push(`${name} has ${lines[odd]} for line ${odd + 1}`);
    if (state === "ready" && lines.length === 0) problems.push(`${name} has no line`);
  }
  const pods = (await on.listPods()).map(({ metadata, status }) => ({ name: metadata.name, phase: status.phase }));
  for (const { name, phase } of pods) {
    if (!running.delete(name)) problems.push(`${name} was leaked`);
    else if (phase !== "Running") problems.push(`${name} is ${phase}`);
  }
  for (const name of running) problems.push(`${name} is missing`);
  const secrets = await cluster.kubectl("get", "secrets", `--namespace=${deployed.sandboxes}`, "--output=name");
  if (secrets !== "") problems.push(`there are ${secrets}`);
  return problems;
}
