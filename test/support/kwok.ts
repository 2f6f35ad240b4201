import { access, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { TestCluster } from "./cluster.ts";
import { startProcess } from "./process.ts";
import { createTempFolder } from "./temp-folder.ts";

const annotation = "kwok.x-k8s.io/node";
/** As many pods as a node of a usual cluster takes. */
const podsPerNode = 250;
const startTimeoutMs = 60_000;

/** Nodes that only pretend: their pods run, and end, as soon as they are asked to. */
export interface PretendedNodes {
  stop(): Promise<void>;
}

/** Throws unless kwok can be started. For `requireServer("kwok", …)`. */
export async function findKwok(): Promise<string> {
  const folders = [process.env.SANDGATE_TEST_KUBERNETES ?? "", ...(process.env.PATH ?? "").split(delimiter)];
  for (const folder of folders.filter(Boolean)) {
    const path = join(folder, "kwok");
    if (
      await access(path).then(
        () => true,
        () => false,
      )
    )
      return path;
  }
  throw new Error("neither SANDGATE_TEST_KUBERNETES (a folder of programs) nor PATH has kwok");
}

/** Adds nodes for that many pods to a cluster, and keeps its other nodes from getting new ones. */
export async function startKwok(cluster: TestCluster, { pods }: { pods: number }): Promise<PretendedNodes> {
  const program = await findKwok();
  const { path: folder, remove } = await createTempFolder();
  const config = join(folder, "kwok.json");
  await writeFile(config, stages.map((stage) => JSON.stringify(stage)).join("\n---\n"));
  const { items: others } = (await cluster.call("GET", "/api/v1/nodes")) as { items: { metadata: { name: string } }[] };
  for (const { metadata } of others) await cluster.kubectl("cordon", metadata.name);
  const kwok = startProcess(
    program,
    [
      `--kubeconfig=${cluster.kubeconfig}`,
      `--config=${config}`,
      `--manage-nodes-with-annotation-selector=${annotation}=fake`,
      "--node-lease-duration-seconds=40",
      // It tells of each change otherwise.
      "-v=WARN",
    ],
    { env: { PATH: process.env.PATH, HOME: folder } },
  );
  const stop = async () => {
    await kwok.stop();
    await remove();
  };
  try {
    const names = Array.from({ length: Math.ceil(pods / podsPerNode) }, (_, index) => `pretended-${index}`);
    for (const name of names) await cluster.call("POST", "/api/v1/nodes", nodeOf(name));
    const deadline = Date.now() + startTimeoutMs;
    for (const name of names) {
      while (!(await isSchedulable(cluster, name))) {
        if (kwok.child.exitCode !== null) throw new Error(`kwok has ended:\n${kwok.output()}`);
        if (Date.now() > deadline) throw new Error(`kwok's nodes did not become ready:\n${kwok.output()}`);
        await delay(100);
      }
    }
  } catch (error) {
    await stop();
    throw error;
  }
  return { stop };
}

async function isSchedulable(cluster: TestCluster, name: string): Promise<boolean> {
  const { spec } = (await cluster.call("GET", `/api/v1/nodes/${name}`)) as { spec: { taints?: unknown[] } };
  return (spec.taints ?? []).length === 0;
}

function nodeOf(name: string) {
  const arch = process.arch === "x64" ? "amd64" : process.arch;
  const room = { cpu: "1000", memory: "4Ti", "ephemeral-storage": "100Ti", pods: String(podsPerNode) };
  const now = new Date().toISOString();
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: {
      name,
      annotations: { [annotation]: "fake" },
      labels: { "kubernetes.io/os": "linux", "kubernetes.io/arch": arch, "kubernetes.io/hostname": name },
    },
    status: {
      capacity: room,
      allocatable: room,
      conditions: [
        { type: "Ready", status: "True", reason: "Pretended", lastHeartbeatTime: now, lastTransitionTime: now },
      ],
    },
  };
}

/** What kwok does with pods. It manages a node's pods once it has a stage for nodes. */
const stages = [
  {
    apiVersion: "kwok.x-k8s.io/v1alpha1",
    kind: "Stage",
    metadata: { name: "node" },
    spec: {
      resourceRef: { apiGroup: "v1", kind: "Node" },
      selector: { matchExpressions: [{ key: ".status.phase", operator: "DoesNotExist" }] },
      next: { statusTemplate: "phase: Running" },
    },
  },
  stage("run", "Pending", "DoesNotExist", {
    statusTemplate: JSON.stringify({
      phase: "Running",
      startTime: "{{ Now }}",
      conditions: ["Initialized", "Ready", "ContainersReady"].map((type) => ({
        type,
        status: "True",
        lastTransitionTime: "{{ Now }}",
      })),
      containerStatuses: [containerStatus({ running: { startedAt: "{{ Now }}" } })],
    }),
  }),
  ...["Pending", "Running"].map((phase) =>
    stage(`end-${phase.toLowerCase()}`, phase, "Exists", {
      statusTemplate: JSON.stringify({
        phase: "Succeeded",
        containerStatuses: [
          containerStatus({
            terminated: { exitCode: 0, reason: "Completed", startedAt: "{{ Now }}", finishedAt: "{{ Now }}" },
          }),
        ],
      }),
    }),
  ),
  stage("remove", "Succeeded", "Exists", { delete: true }),
];

/** Of a pod's one container. */
function containerStatus(state: object) {
  const isRunning = "running" in state;
  const [name, image] = ["name", "image"].map((field) => `{{ (index .spec.containers 0).${field} }}`);
  return { name, image, imageID: image, ready: isRunning, started: isRunning, restartCount: 0, state };
}

/** One step of a pod of this phase whose deletion was asked for, or wasn't. */
function stage(name: string, phase: string, deletion: "Exists" | "DoesNotExist", next: object) {
  return {
    apiVersion: "kwok.x-k8s.io/v1alpha1",
    kind: "Stage",
    metadata: { name },
    spec: {
      resourceRef: { apiGroup: "v1", kind: "Pod" },
      selector: {
        matchExpressions: [
          { key: ".status.phase", operator: "In", values: [phase] },
          { key: ".metadata.deletionTimestamp", operator: deletion },
        ],
      },
      next,
    },
  };
}
