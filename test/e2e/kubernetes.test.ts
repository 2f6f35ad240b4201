import { openTestCluster, probeCluster, type TestCluster } from "@sandgate/test-support/cluster";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { probeRegistry, startRegistry, type TestRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { expectStatus } from "../conformance/client.ts";
import { applyRights, createToken, deployed } from "../deploy/cluster-rights.ts";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { type Operator, openOperator } from "../platform/operator.ts";

vi.setConfig({ testTimeout: 120_000 });

const isAvailable = await requireServer("kubernetes", async () => {
  await probeCluster();
  await probeRegistry();
});
const credential = { username: "alice", password: "correct horse" };

describe.runIf(isAvailable)("the platform in one process, with sandboxes as pods", () => {
  const closing = new AsyncDisposableStack();
  let cluster: TestCluster;
  let registry: TestRegistry;
  let privateRegistry: TestRegistry;
  let platform: TestPlatform;
  let operator: Operator;

  beforeAll(async () => {
    cluster = closing.adopt(await openTestCluster(), (each) => each.stop());
    registry = closing.adopt(await startRegistry(), (each) => each.stop());
    privateRegistry = closing.adopt(await startRegistry({ users: [credential] }), (each) => each.stop());
    await applyRights(cluster);
    const kubeconfig = await cluster.writeKubeconfig("sandbox", await createToken(cluster, deployed.sandbox));
    platform = closing.adopt(
      await startPlatform({
        settings: {
          SANDGATE_RUNTIME: `kubernetes:${kubeconfig}`,
          SANDGATE_KUBERNETES_NAMESPACE: deployed.sandboxes,
          SANDGATE_REGISTRY_ALLOW: "127.0.0.0/8",
        },
      }),
      (each) => each.stop(),
    );
    operator = await openOperator(platform);
  });
  afterAll(() => closing.disposeAsync());

  const pods = `/api/v1/namespaces/${deployed.sandboxes}/pods`;
  const podOf = (sandboxId: string) => cluster.call("GET", `${pods}/sandgate-${sandboxId}`);

  async function register(command: readonly string[], changes: object = {}): Promise<string> {
    const image = await makeImage({ command, files: { "www/index.html": "hello\n" } });
    const reference = await pushImage(image, { host: cluster.registry ?? registry.host, repository: "team/app" });
    return operator.registerImage(reference, changes);
  }

  const reaches = (sandboxId: string, state: string, reason: string | null) =>
    until(async () => {
      const sandbox = await operator.read(sandboxId);
      expect([sandbox.state, sandbox.state_reason]).toEqual([state, reason]);
      return sandbox;
    });

  test("provisions a sandbox that answers on its port, stops it, and removes its pod", async () => {
    const serve = ["httpd", "-f", "-p", "8000", "-h", "/www"];
    const id = await operator.provisionReady(await register(serve, { readiness_port: 8000 }));
    expect(await podOf(id)).toMatchObject({ status: { phase: "Running" } });
    expectStatus(await operator.delete(`/sandboxes/${id}`, operator.as), 204);
    await reaches(id, "stopped", "stopped_by_user");
    await until(() => expect(podOf(id)).rejects.toThrow("404"));
  });

  test("pulls a private image with its workspace's credential", async () => {
    const image = await makeImage({ command: ["sleep", "3600"] });
    const { host } = privateRegistry;
    const reference = await pushImage(image, { host, repository: "team/private", credential });
    const made = await operator.post("/registries", { name: "private", url: host, ...credential }, operator.as);
    const { id: registryId } = expectStatus(made, 201);
    const body = { name: "private", image: reference, memory_mb: 256 };
    const open = expectStatus(await operator.post("/sandbox-images", body, operator.as), 201).id;
    const closed = { ...body, name: "with-credential", registry_id: registryId };
    const known = expectStatus(await operator.post("/sandbox-images", closed, operator.as), 201).id;
    await operator.provisionReady(known);
    // The node has the image now, which is no help to who may not pull it.
    await reaches(await operator.provision(open), "failed", "image_pull_unauthorized");
    const secrets = await cluster.kubectl("get", "secrets", `--namespace=${deployed.sandboxes}`, "--output=name");
    expect(secrets).toBe("");
  });

  test("tells how a sandbox failed", async () => {
    const exited = await operator.provision(await register(["sh", "-c", "exit 4"]));
    expect(await reaches(exited, "failed", "exited")).toMatchObject({ exit_code: 4 });
    const missing = await operator.provision(await register(["/no/such/program"]));
    expect((await reaches(missing, "failed", "start_failed")).message).toContain("/no/such/program");
    const lost = await operator.provisionReady(await register(["sleep", "3600"]));
    await cluster.call("DELETE", `${pods}/sandgate-${lost}`, {});
    await reaches(lost, "failed", "runtime_lost");
    await until(() => expect(podOf(lost)).rejects.toThrow("404"));
  });

  test("goes on after a crash, and a time to live ends a sandbox while the platform is away", async () => {
    const idle = await register(["sleep", "3600"]);
    const expiring = await operator.provisionReady(await register(["sleep", "3600"], { ttl_seconds: 3_600 }));
    const staying = await operator.provisionReady(idle);
    const accepted = await operator.provision(idle);
    await platform.kill();
    // As if its hour were over.
    await cluster.call("PATCH", `${pods}/sandgate-${expiring}`, { spec: { activeDeadlineSeconds: 1 } });
    await until(async () => expect(await podOf(expiring)).toMatchObject({ status: { reason: "DeadlineExceeded" } }));
    await platform.start();
    await reaches(expiring, "stopped", "ttl_expired");
    await reaches(staying, "ready", null);
    await reaches(accepted, "ready", null);
  });
});
