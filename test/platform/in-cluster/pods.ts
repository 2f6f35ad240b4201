import { readdir, readFile } from "node:fs/promises";
import type { TestCluster } from "@sandgate/test-support/cluster";
import { until } from "@sandgate/test-support/until";
import { deployed } from "../../deploy/cluster-rights.ts";

/** Waits for each pod of a namespace. */
export async function awaitPods(cluster: TestCluster, namespace: string): Promise<void> {
  const pods = ["--namespace", namespace, "pods", "--all"];
  await until(async () => {
    const names = await cluster.kubectl("get", "pods", "--namespace", namespace, "--output=name");
    if (names === "") throw new Error(`there is no pod in ${namespace}`);
  });
  await cluster.kubectl("wait", "--for=condition=Ready", "--timeout=180s", ...pods).catch(async (cause: Error) => {
    const states = await cluster.kubectl("describe", "pods", "--namespace", namespace);
    throw new Error(`pods of ${namespace} are not ready:\n${states.slice(-6_000)}`, { cause });
  });
}

/** Waits until the platform at this address, and every pod of it, is ready. */
export async function awaitReady(cluster: TestCluster, url: string): Promise<void> {
  for (const namespace of [deployed.sandbox.namespace, deployed.collector.namespace])
    await awaitPods(cluster, namespace);
  await until(
    async () => {
      const answer = await fetch(`${url}/readyz`);
      if (!answer.ok) throw new Error(`${url}/readyz: ${answer.status} ${await answer.text()}`);
      await answer.body?.cancel();
    },
    { intervalMs: 100 },
  );
}

/** Returns the ids of the processes in the containers of a pod. */
export async function findProcesses(podUid: string): Promise<number[]> {
  const found: number[] = [];
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const groups = await readFile(`/proc/${name}/cgroup`, "utf8").catch(() => "");
    const program = await readFile(`/proc/${name}/cmdline`, "utf8").catch(() => "");
    // The pod's own process only keeps its network.
    if (groups.includes(`pod${podUid}/`) && program.includes("main.ts")) found.push(Number(name));
  }
  if (found.length === 0) throw new Error(`there is no process of the pod ${podUid}`);
  return found;
}
