import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import pLimit from "p-limit";
import { deployed, writeSandboxKubeconfig } from "../../deploy/cluster-rights.ts";
import { type OpenLifecycle, openKubernetesRuntime } from "../../platform/kubernetes-runtime.ts";
import { compareRounds, type Figure, median } from "../figure.ts";
import type { JsonClient } from "../json-client.ts";
import { processorMs } from "../process-figures.ts";
import { report } from "../report.ts";
import { openWorkspaces } from "../sandboxes.ts";
import { awaitPods, type Bench, countPods, openOnBench, podsPath, readBarePod, readRecords } from "./bench.ts";

/** Calls at once. */
const inFlight = [8, 32];
/** With each, after one that only warms up. */
const rounds = 5;
const workspaces = 10;
/** Removals at once. */
const cleanUpAtOnce = 16;

/** Creates so many pods, and returns how to remove them. Resolves once the last call was answered. */
type Create = (count: number, atOnce: number) => Promise<() => Promise<unknown>>;

/**
 * Pods a second, from the first call until the last pod is there: of a bare client, of the adapter alone, and of the
 * whole platform, to which a call is a request of the public API. Scheduler and nodes work beside all three.
 */
export async function measureCreation(bench: Bench, count: number): Promise<Figure[]> {
  await using closing = new AsyncDisposableStack();
  const { platform, operator, api, client } = await openOnBench(bench, closing);
  const imageId = await operator.registerImage(bench.image, { readiness_port: bench.port });
  // The first pull is verified layer by layer, for all.
  const first = await operator.provisionReady(imageId);
  const bareOf = await readBarePod(client, first);
  await operator.delete(`/sandboxes/${first}`, operator.as);
  const runtime = closing.adopt(await openRuntime(bench), (each) => each.close());
  const ids = await openWorkspaces(operator, workspaces);
  const creators: Record<"bare" | "adapter" | "platform", Create> = {
    bare: createBare(client, bareOf),
    adapter: createByAdapter(runtime, bench),
    async platform(pods, atOnce) {
      const requests = Array.from({ length: pods }, (_, index) => ids[index % workspaces] ?? "");
      const made: { path: string; headers: Record<string, string> }[] = [];
      const provision = async (workspace: string) => {
        const headers = { "x-workspace-id": workspace };
        const { id } = await api.call("POST", "/sandboxes/provision", { body: { image_id: imageId }, headers });
        made.push({ path: `/sandboxes/${id}`, headers });
      };
      await pLimit(atOnce).map(requests, provision);
      return async () => {
        await pLimit(cleanUpAtOnce).map(made, ({ path, headers }) =>
          api.call("DELETE", path, { headers, allowed: [200, 202, 204] }),
        );
        while (readRecords(platform).length > 0) await delay(200);
      };
    },
  };
  await untilNone(client);

  const figures: Figure[] = [];
  for (const atOnce of inFlight) {
    const rates = { bare: [] as number[], adapter: [] as number[], platform: [] as number[] };
    /** Processor time for each pod, of whoever creates them, in ms. */
    const costs = { bare: [] as number[], adapter: [] as number[], platform: [] as number[] };
    for (let round = 0; round <= rounds; round++) {
      for (const name of ["bare", "adapter", "platform"] as const) {
        const pid = name === "platform" ? platform.process.child.pid : process.pid;
        const { perSecond, costMs } = await measure(
          client,
          pid,
          creators[name],
          round === 0 ? count / 5 : count,
          atOnce,
        );
        if (round === 0) continue;
        costs[name].push(costMs);
        rates[name].push(perSecond);
      }
    }
    for (const name of ["adapter", "platform"] as const) {
      const { value, span } = compareRounds(rates[name], rates.bare);
      const cost = `${median(costs[name]).toFixed(1)} ms of its processor time for each, ${median(costs.bare).toFixed(1)} ms of the bare client's`;
      figures.push({
        what: `${count} pods created with ${atOnce} calls in flight by ${name === "adapter" ? "the adapter alone" : "the platform over REST"}, of a bare client's rate`,
        value,
        unit: "",
        aim: "at least 0.9",
        detail: `${median(rates[name]).toFixed(0)} against ${median(rates.bare).toFixed(0)} a second; ${span}; ${cost}`,
      });
      report(`${atOnce} in flight, ${name}: ${figures.at(-1)?.value.toFixed(2)}; ${figures.at(-1)?.detail}`);
    }
  }
  return figures;
}

async function measure(client: JsonClient, pid: number | undefined, create: Create, wanted: number, atOnce: number) {
  const count = Math.ceil(wanted);
  const cpuMs = await processorMs(pid);
  const failed = new AbortController();
  const startedAt = performance.now();
  const creating = create(count, atOnce);
  creating.catch(() => failed.abort());
  await awaitPods(client, count, failed.signal);
  const seconds = (performance.now() - startedAt) / 1000;
  const remove = await creating;
  const costMs = ((await processorMs(pid)) - cpuMs) / count;
  await remove();
  await untilNone(client);
  return { perSecond: count / seconds, costMs };
}

async function untilNone(client: JsonClient): Promise<void> {
  while ((await countPods(client)) > 0) await delay(200);
}

function createBare(client: JsonClient, bareOf: (name: string) => object): Create {
  return async (count, atOnce) => {
    const names = Array.from({ length: count }, () => `bare-${randomUUID()}`);
    await pLimit(atOnce).map(names, (name) => client.call("POST", podsPath, { body: bareOf(name) }));
    return () => pLimit(cleanUpAtOnce).map(names, (name) => client.call("DELETE", `${podsPath}/${name}`));
  };
}

function createByAdapter(runtime: OpenLifecycle, bench: Bench): Create {
  return async (count, atOnce) => {
    const ids = Array.from({ length: count }, () => `sbx-${randomUUID()}`);
    const ensure = async (sandboxId: string) => {
      await runtime.ensure({
        sandboxId,
        workspaceId: "bench",
        reference: bench.image,
        memoryMb: 256,
        cpus: 1,
        pids: 512,
        readinessPort: bench.port,
      });
    };
    await pLimit(atOnce).map(ids, ensure);
    return () => pLimit(cleanUpAtOnce).map(ids, (id) => runtime.remove(id));
  };
}

/** The adapter with the platform's settings. */
async function openRuntime(bench: Bench): Promise<OpenLifecycle> {
  const runtime = openKubernetesRuntime(await writeSandboxKubeconfig(bench.cluster), randomUUID(), {
    namespace: deployed.sandboxes,
    writesPerSecond: 10_000,
    pod: { cpuRequestMillis: 50, diskMb: 10_240, nodeLostSeconds: 120, startSeconds: 720 },
  });
  await runtime.check();
  return runtime;
}
