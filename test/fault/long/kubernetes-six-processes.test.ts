import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { clusterHost, testSandboxesOn } from "../../conformance/sandbox-host.ts";
import { describeSuite } from "../../conformance/suite.ts";
import { suiteSettings, testRunning } from "../../conformance/target.ts";
import { deployed } from "../../deploy/cluster-rights.ts";
import { type ClusterPlatform, requireInCluster, startInCluster } from "../../platform/in-cluster/platform.ts";
import { openOperator } from "../../platform/operator.ts";

describe.runIf(await requireInCluster())("the public API as pods of a cluster", () => {
  let platform: ClusterPlatform;

  testRunning(() => ({ ...platform, urls: [platform.url] }));
  testSandboxesOn(() => clusterHost(platform.cluster, { namespace: deployed.sandboxes, registry: platform.registry }));

  beforeAll(async () => {
    // Twenty sandboxes at once beside the processes, on two cores.
    const settings = { ...suiteSettings, SANDGATE_SANDBOX_CPU_REQUEST_MILLIS: "10" };
    platform = await startInCluster({ settings, replicas: 2 });
  });
  afterAll(() => platform?.stop());

  describeSuite();

  test("a rolling update of all processes fails no request, and sandboxes run on", { timeout: 600_000 }, async () => {
    const operator = await openOperator(platform);
    const staying = await operator.provisionReady(operator.defaultImageId);
    const done = new AbortController();
    const failed: string[] = [];
    let answered = 0;
    const ask = async (request: () => Promise<{ status: number; text: string }>) => {
      while (!done.signal.aborted) {
        const answer = await request().catch((error: Error) => ({ status: 0, text: `${error} ${error.cause}` }));
        answered++;
        if (answer.status >= 400 || answer.status === 0) failed.push(`${answer.status} ${answer.text}`);
        await delay(50);
      }
    };
    const asking = Promise.all([
      ask(() => operator.get("/sandboxes", operator.as)),
      ask(() => operator.get("/sandbox-images", operator.as)),
      ask(() => operator.get(`/workspaces/${operator.as.workspace}/members`, operator.as)),
      ask(() => operator.get(`/sandbox/monitoring/${staying}?limit=1`, operator.as)),
      ask(async () => {
        const made = await operator.post("/sandboxes/provision", { image_id: operator.defaultImageId }, operator.as);
        return made.status === 201 ? operator.delete(`/sandboxes/${made.body.id}`, operator.as) : made;
      }),
    ]);
    const namespace = `--namespace=${deployed.sandbox.namespace}`;
    await platform.cluster.kubectl("rollout", "restart", "deployment", namespace);
    for (const name of ["facade", "identity", "workspace", "image-registry", "sandbox", "telemetry"]) {
      await platform.cluster.kubectl("rollout", "status", `deployment/${name}`, namespace, "--timeout=300s");
    }
    done.abort();
    await asking;
    expect(failed).toEqual([]);
    expect(answered).toBeGreaterThan(100);
    expect(await operator.read(staying)).toMatchObject({ state: "ready" });
  });
});
