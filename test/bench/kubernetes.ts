import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { cpus } from "node:os";
import { env, pid } from "node:process";
import { promisify } from "node:util";
import { openTestCluster, probeCluster } from "@sandgate/test-support/cluster";
import { findKwok, startKwok } from "@sandgate/test-support/kwok";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { probeRegistry, startRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { applyRights } from "../deploy/cluster-rights.ts";
import { pushHelperImage } from "../platform/helper-image.ts";
import type { Figure } from "./figure.ts";
import type { Bench } from "./kubernetes/bench.ts";
import { measureCreation } from "./kubernetes/creation.ts";
import { measureLive } from "./kubernetes/live.ts";
import { measurePods } from "./kubernetes/pods.ts";
import { measureLostReplica } from "./kubernetes/replica.ts";

/** Live sandboxes at once, on nodes that only pretend; 0 leaves that part out, as with those below. */
const live = Number(env.SANDGATE_BENCH_PODS ?? 10_000);
/** Created in each round. */
const creations = Number(env.SANDGATE_BENCH_CREATIONS ?? 1_000);
/** Rounds of real pods, one by one. */
const rounds = Number(env.SANDGATE_BENCH_REAL_PODS ?? 15);
/**
 * Whether the cluster has one half of the cores and the platform and its clients the other, as if on machines of their
 * own.
 */
const isApart = env.SANDGATE_BENCH_APART === "true";
const cores = cpus().length;

/** Sandboxes as pods of a cluster of the bench's own: real ones on its node, and many on nodes that kwok pretends. */
export async function measureKubernetes(): Promise<Figure[]> {
  const isAvailable = await requireServer("kubernetes", async () => {
    if (env.KUBECONFIG) throw new Error("its nodes would be changed: KUBECONFIG must not be set");
    await probeCluster();
    await probeRegistry();
    await findKwok();
  });
  if (!isAvailable) return [];
  await using closing = new AsyncDisposableStack();
  if (isApart) await moveToCores(0, cores / 2 - 1);
  // What is measured must not wait for the clients of the cluster itself.
  const fast = ["--kube-api-qps=2000", "--kube-api-burst=4000"];
  const cluster = closing.adopt(await openTestCluster({ schedulerArgs: fast, controllerManagerArgs: fast }), (each) =>
    each.stop(),
  );
  if (!cluster.own) throw new Error("the cluster is not the bench's own");
  const registry = closing.adopt(await startRegistry(), (each) => each.stop());
  await applyRights(cluster);
  const push = async (command: readonly string[]) =>
    pushImage(await makeImage({ command, files: { "www/index.html": "hello\n" } }), {
      host: registry.host,
      repository: "team/app",
    });
  const bench: Bench = {
    cluster,
    certificateAuthority: await readFile(cluster.own.certificateAuthority),
    image: await push(["httpd", "-f", "-p", "8080", "-h", "/www"]),
    port: 8080,
    helperImage: await pushHelperImage(registry.host),
  };
  const figures: Figure[] = [];
  if (rounds > 0) figures.push(...(await measurePods(bench, rounds)));
  if (live === 0 && creations === 0) return figures;
  closing.adopt(await startKwok(cluster, { pods: Math.max(live, creations) * 1.2 + 1_500 }), (each) => each.stop());
  if (isApart) await moveToCores(cores / 2, cores - 1);
  if (creations > 0) figures.push(...(await measureCreation(bench, creations)));
  if (live > 0) {
    figures.push(...(await measureLive(bench, live)));
    figures.push(...(await measureLostReplica(bench, live)));
  }
  return figures;
}

/** Moves this process, and with it those that it starts from now on. */
async function moveToCores(first: number, last: number): Promise<void> {
  const list = `${Math.floor(first)}-${Math.floor(last)}`;
  await promisify(execFile)("taskset", ["--all-tasks", "--cpu-list", "--pid", list, String(pid)]);
}
