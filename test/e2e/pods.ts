import { type TestCluster, untilGone } from "@sandgate/test-support/cluster";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import type { Credential } from "@sandgate/test-support/registry";
import { until } from "@sandgate/test-support/until";
import { describe, expect, test } from "vitest";
import { expectStatus } from "../conformance/client.ts";
import { deployed } from "../deploy/cluster-rights.ts";
import type { ClusterPlatform } from "../platform/in-cluster/platform.ts";
import { type Operator, openOperator } from "../platform/operator.ts";

/** A platform whose sandboxes are pods. */
export interface PodsPlatform {
  cluster: TestCluster;
  operator: Operator;
  /** `host:port` of a registry without users that the platform and the node pull from. */
  registry: string;
  /** Another one, and its user. */
  privateRegistry: { host: string; credential: Credential };
  /** Whether it has the lines and figures of the sandboxes' node. */
  collects: boolean;
  /** Ends the process that looks after sandboxes as a crash would, and for good. */
  kill(): Promise<void>;
  start(): Promise<void>;
}

/** Each look at the API server is a connection of its own. */
const intervalMs = 100;

/** The path of a sandbox's pod; of all without an id. */
export const podPath = (sandboxId?: string) =>
  `/api/v1/namespaces/${deployed.sandboxes}/pods${sandboxId === undefined ? "" : `/sandgate-${sandboxId}`}`;

/** All of Sandgate in a cluster, whose sandbox replicas are what a test kills and starts. */
export async function podsPlatformOf(started: ClusterPlatform): Promise<PodsPlatform> {
  return {
    ...started,
    operator: await openOperator(started),
    collects: true,
    kill: () => started.kill("sandbox"),
    start: () => started.start("sandbox"),
  };
}

/** Registers an image of the machine's busybox that serves "hello" from /www if its command does; returns its id. */
export async function registerImage(
  { operator, registry }: Pick<PodsPlatform, "operator" | "registry">,
  command: readonly string[],
  changes: object = {},
): Promise<string> {
  const image = await makeImage({ command, files: { "www/index.html": "hello\n" } });
  return operator.registerImage(await pushImage(image, { host: registry, repository: "team/app" }), changes);
}

export const readPod = ({ cluster }: Pick<PodsPlatform, "cluster">, sandboxId: string) =>
  cluster.call("GET", podPath(sandboxId));

/** Waits until a sandbox's pod is gone. */
export const isRemoved = ({ cluster }: Pick<PodsPlatform, "cluster">, sandboxId: string) =>
  untilGone(cluster, podPath(sandboxId));

/** Waits until a sandbox is in this state for this reason, and returns its record. */
export const reaches = (
  { operator }: Pick<PodsPlatform, "operator">,
  sandboxId: string,
  state: string,
  reason: string | null,
) =>
  until(
    async () => {
      const sandbox = await operator.read(sandboxId);
      expect([sandbox.state, sandbox.state_reason], sandbox.message).toEqual([state, reason]);
      return sandbox;
    },
    { intervalMs },
  );

export const linesOf = async ({ operator }: Pick<PodsPlatform, "operator">, sandboxId: string): Promise<string[]> =>
  (await operator.monitor(sandboxId, "&include=logs")).logs.map(({ log }: { log: string }) => log);

/** What holds of sandboxes that are pods, wherever the platform's own processes run. */
export function testPods(platform: () => PodsPlatform): void {
  // They wait most of the time.
  describe.concurrent("at the same time", () => {
    test("provisions a sandbox that answers on its port, stops it, and removes its pod", async () => {
      const { operator } = platform();
      // It ends on SIGTERM.
      const serve = ["sh", "-c", "trap 'exit 0' TERM; httpd -p 8000 -h /www; while :; do sleep 0.1; done"];
      const id = await operator.provisionReady(await registerImage(platform(), serve, { readiness_port: 8000 }));
      expect(await readPod(platform(), id)).toMatchObject({ status: { phase: "Running" } });
      expectStatus(await operator.delete(`/sandboxes/${id}`, operator.as), 204);
      await reaches(platform(), id, "stopped", "stopped_by_user");
      await isRemoved(platform(), id);
    });

    test("pulls a private image with its workspace's credential", async ({ skip }) => {
      const { operator, cluster, privateRegistry } = platform();
      skip(!cluster.pullsFromLoopback, "the nodes of the cluster at KUBECONFIG pull from no registry of this machine");
      const { host, credential } = privateRegistry;
      const image = await makeImage({ command: ["sleep", "3600"] });
      const reference = await pushImage(image, { host, repository: "team/private", credential });
      const made = await operator.post("/registries", { name: "private", url: host, ...credential }, operator.as);
      const { id: registryId } = expectStatus(made, 201);
      const body = { name: "private", image: reference, memory_mb: 256 };
      const open = expectStatus(await operator.post("/sandbox-images", body, operator.as), 201).id;
      const closed = { ...body, name: "with-credential", registry_id: registryId };
      const known = expectStatus(await operator.post("/sandbox-images", closed, operator.as), 201).id;
      await operator.provisionReady(known);
      // The node has the image now, which is no help to who may not pull it.
      await reaches(platform(), await operator.provision(open), "failed", "image_pull_unauthorized");
      const secrets = await cluster.kubectl("get", "secrets", `--namespace=${deployed.sandboxes}`, "--output=name");
      expect(secrets).toBe("");
    });

    test("tells how a sandbox failed", async () => {
      const { operator, cluster } = platform();
      const exited = await operator.provision(await registerImage(platform(), ["sh", "-c", "exit 4"]));
      expect(await reaches(platform(), exited, "failed", "exited")).toMatchObject({ exit_code: 4 });
      const missing = await operator.provision(await registerImage(platform(), ["/no/such/program"]));
      expect((await reaches(platform(), missing, "failed", "start_failed")).message).toContain("lacks its command");
      const lost = await operator.provisionReady(await registerImage(platform(), ["sleep", "3600"]));
      await cluster.call("DELETE", podPath(lost), {});
      await reaches(platform(), lost, "failed", "runtime_lost");
      await isRemoved(platform(), lost);
    });
  });

  test("shows the lines and figures that a sandbox's node has, also its last lines once its pod is gone", async ({
    skip,
  }) => {
    const { operator, collects } = platform();
    skip(!collects, "the cluster at KUBECONFIG has its nodes elsewhere");
    const script = "trap 'echo bye; exit 0' TERM; echo hello; echo oops >&2; while :; do sleep 0.1; done";
    const id = await operator.provisionReady(await registerImage(platform(), ["sh", "-c", script]));
    await until(async () => expect((await linesOf(platform(), id)).toSorted()).toEqual(["hello", "oops"]), {
      intervalMs,
    });
    await until(async () => expect((await operator.monitor(id)).metrics.at(-1)?.memory_usage).toBeGreaterThan(0), {
      intervalMs,
    });
    expectStatus(await operator.delete(`/sandboxes/${id}`, operator.as), 204);
    await reaches(platform(), id, "stopped", "stopped_by_user");
    await isRemoved(platform(), id);
    const lines = await linesOf(platform(), id);
    expect([lines.length, lines.at(-1)]).toEqual([3, "bye"]);
  });

  test("goes on after a crash, and a time to live ends a sandbox while the platform is away", async () => {
    const { operator, cluster } = platform();
    const idle = await registerImage(platform(), ["sleep", "3600"]);
    const limited = await registerImage(platform(), ["sleep", "3600"], { ttl_seconds: 3_600 });
    const expiring = await operator.provisionReady(limited);
    const staying = await operator.provisionReady(idle);
    const accepted = await operator.provision(idle);
    await platform().kill();
    // As if its hour were over.
    await cluster.call("PATCH", podPath(expiring), { spec: { activeDeadlineSeconds: 1 } });
    await until(
      async () => expect(await readPod(platform(), expiring)).toMatchObject({ status: { reason: "DeadlineExceeded" } }),
      { intervalMs },
    );
    await platform().start();
    await reaches(platform(), expiring, "stopped", "ttl_expired");
    await reaches(platform(), staying, "ready", null);
    await reaches(platform(), accepted, "ready", null);
  });
}
