import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { expectStatus } from "../conformance/client.ts";
import { deployed } from "../deploy/cluster-rights.ts";
import { type ClusterPlatform, requireInCluster, startInCluster } from "../platform/in-cluster/platform.ts";
import { type Operator, openOperator } from "../platform/operator.ts";

vi.setConfig({ testTimeout: 120_000 });

describe.runIf(await requireInCluster())("the platform as pods of a cluster", () => {
  let platform: ClusterPlatform;
  let operator: Operator;

  beforeAll(async () => {
    platform = await startInCluster({ replicas: 1 });
    operator = await openOperator(platform);
  });
  afterAll(() => platform?.stop());

  const pods = `/api/v1/namespaces/${deployed.sandboxes}/pods`;
  const podOf = (sandboxId: string) => platform.cluster.call("GET", `${pods}/sandgate-${sandboxId}`);
  const isRemoved = (sandboxId: string) => until(() => expect(podOf(sandboxId)).rejects.toThrow("404"));

  async function register(command: readonly string[], changes: object = {}): Promise<string> {
    const image = await makeImage({ command, files: { "www/index.html": "hello\n" } });
    return operator.registerImage(await pushImage(image, { host: platform.registry, repository: "team/app" }), changes);
  }
  const reaches = (sandboxId: string, state: string, reason: string | null) =>
    until(async () => {
      const sandbox = await operator.read(sandboxId);
      expect([sandbox.state, sandbox.state_reason]).toEqual([state, reason]);
      return sandbox;
    });

  test("provisions a sandbox, shows its lines and figures from its node, stops it, and removes its pod", async () => {
    const script = "trap 'echo bye; exit 0' TERM; echo hello; httpd -p 8000 -h /www; while :; do sleep 0.1; done";
    const id = await operator.provisionReady(await register(["sh", "-c", script], { readiness_port: 8000 }));
    expect(await podOf(id)).toMatchObject({ status: { phase: "Running" } });
    await until(async () => {
      const { logs, metrics } = await operator.monitor(id);
      expect(logs.map(({ log }: { log: string }) => log)).toEqual(["hello"]);
      expect(metrics.at(-1).memory_usage).toBeGreaterThan(0);
    });
    expectStatus(await operator.delete(`/sandboxes/${id}`, operator.as), 204);
    await reaches(id, "stopped", "stopped_by_user");
    await isRemoved(id);
    const { logs } = await operator.monitor(id);
    expect(logs.at(-1).log).toBe("bye");
  });
});
