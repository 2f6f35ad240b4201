import { readFile } from "node:fs/promises";
import { env } from "node:process";
import { openTestCluster, probeCluster } from "@sandgate/test-support/cluster";
import { findKwok, startKwok } from "@sandgate/test-support/kwok";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { probeRegistry, startRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { applyRights } from "../deploy/cluster-rights.ts";
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
  };
  const figures: Figure[] = [];
  if (rounds > 0) figures.push(...(await measurePods(bench, rounds)));
  if (live === 0 && creations === 0) return figures;
  closing.adopt(await startKwok(cluster, { pods: Math.max(live, creations) * 1.2 + 1_500 }), (each) => each.stop());
  if (creations > 0) figures.push(...(await measureCreation(bench, creations)));
  if (live > 0) {
    figures.push(...(await measureLive(bench, live)));
    figures.push(...(await measureLostReplica(bench, live)));
  }
  return figures;
}
