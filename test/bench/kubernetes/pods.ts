import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { containerName, helperContainerName } from "@sandgate/kubernetes-api/raw-pod";
import type { Operator } from "../../platform/operator.ts";
import { compare, type Undo } from "../compare.ts";
import type { Figure } from "../figure.ts";
import type { JsonClient } from "../json-client.ts";
import { report } from "../report.ts";
import { type Bench, openOnBench, type PodObject, podsPath, readBarePod } from "./bench.ts";

const atOnce = 30;
const roundsAtOnce = 3;
/** A container's start has a resolution of a second, and a kubelet probes it once a second. */
const pollMs = 10;

/**
 * Provision until ready over the public API, against a client that creates a pod with the same spec and asks until it
 * is ready: alone, and thirty at once, which for the platform are of one workspace. And what the container that brings
 * the helper costs a pod.
 */
export async function measurePods(bench: Bench, rounds: number): Promise<Figure[]> {
  await using closing = new AsyncDisposableStack();
  const { operator, client } = await openOnBench(bench, closing, { SANDGATE_HELPER_IMAGE: bench.helperImage });
  const imageId = await operator.registerImage(bench.image, { readiness_port: bench.port });
  const first = await operator.provisionReady(imageId);
  const bareOf = await readBarePod(client, first);
  await remove(operator, client, first);
  const runs = {
    async ours(): Promise<Undo> {
      const id = await operator.provisionReady(imageId);
      return () => remove(operator, client, id);
    },
    bare: () => runBare(client, bareOf(`bare-${randomUUID()}`)),
  };
  const helped = { ours: runs.bare, bare: () => runBare(client, withoutHelper(bareOf(`bare-${randomUUID()}`))) };
  const figures: Figure[] = [];
  for (const [what, aim, pair, amount, times] of [
    ["pod: provision to ready, of a bare pod's time", "at most 1.15", runs, 1, rounds],
    ["bare pod with the helper, of one without", "at most 1.3", helped, 1, rounds],
    [`${atOnce} pods at once, of bare pods' time`, "at most 1.2", runs, atOnce, roundsAtOnce],
    [`${atOnce} bare pods with the helper at once, of such without`, "at most 1.3", helped, atOnce, roundsAtOnce],
  ] as const) {
    const figure = await compare(what, aim, pair, amount, times);
    figures.push(figure);
    report(`${what}: ${figure.value.toFixed(2)}; ${figure.detail}`);
  }
  return figures;
}

async function remove(operator: Operator, client: JsonClient, id: string): Promise<void> {
  await operator.delete(`/sandboxes/${id}`, operator.as);
  await untilGone(client, `${podsPath}/sandgate-${id}`);
}

function withoutHelper(pod: PodObject): PodObject {
  const containers = pod.spec.containers.filter(({ name }) => name !== helperContainerName);
  return { ...pod, spec: { ...pod.spec, containers } };
}

async function runBare(client: JsonClient, pod: PodObject): Promise<Undo> {
  await client.call("POST", podsPath, { body: pod });
  const path = `${podsPath}/${pod.metadata.name}`;
  for (;;) {
    const { status } = await client.call("GET", path);
    // Its startup probe has succeeded, which is ready to us too: a kubelet sets the condition Ready up to a second
    // later.
    const statuses: { name: string; started?: boolean }[] = status.containerStatuses ?? [];
    if (statuses.some(({ name, started }) => name === containerName && started)) break;
    await delay(pollMs);
  }
  return async () => {
    await client.call("DELETE", path);
    await untilGone(client, path);
  };
}

async function untilGone(client: JsonClient, path: string): Promise<void> {
  while ((await client.call("GET", path, { allowed: [200, 404] })).kind === "Pod") await delay(100);
}
