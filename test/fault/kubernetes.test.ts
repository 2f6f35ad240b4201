import { setTimeout as delay } from "node:timers/promises";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { createClient, expectError, expectStatus } from "../conformance/client.ts";
import { applyRights, deployed } from "../deploy/cluster-rights.ts";
import { podPath } from "../e2e/pods.ts";
import { createCallers } from "./callers.ts";
import { acknowledgedIn } from "./journal.ts";
import { crash } from "./outages.ts";
import {
  expectPodsConsistent,
  findPodProblems,
  type PodPlatform,
  removeWorkspaces,
  requireOwnCluster,
  startPodPlatform,
  writer,
} from "./pod-platform.ts";

vi.setConfig({ testTimeout: 300_000 });

const isAvailable = await requireOwnCluster();

describe.runIf(isAvailable)("a cluster that fails under the platform", () => {
  let on: PodPlatform;
  let imageId: string;

  beforeAll(async () => {
    on = await startPodPlatform({
      cluster: { kubelet: { volumeStatsAggPeriod: "2s" } },
      settings: { SANDGATE_SANDBOX_DISK_MB: "16" },
    });
    imageId = await on.register(writer);
  });
  afterAll(() => on?.stop());

  test("under load, no sandbox and no line is lost while the API server, the kubelet and connections break", async () => {
    const { own, proxy, platform, operator } = on;
    const facades = [createClient(platform.url)];
    const { journal, send } = createCallers({ facades, operator, imageId, callers: 4 });
    let turn = 0;
    const burst = async () => {
      proxy.refuse(() => [{ status: 429, headers: { "retry-after": "1" } }, { status: 500 }, undefined][turn++ % 3]);
      await delay(4_000);
      proxy.refuse(() => undefined);
    };
    const faults = [burst, () => crash(own.apiServer, 5_000), async () => proxy.cut(), () => crash(own.kubelet, 2_000)];
    for (const inject of faults) await send(30, inject());
    expect(acknowledgedIn(journal, "sandbox").length).toBeGreaterThan(5);
    await expectPodsConsistent(journal, on);
    // The checker would find what is missing.
    const [live] = (await on.listPods()).map(({ metadata }) => metadata.name);
    await on.cluster.kubectl("delete", "pod", `--namespace=${deployed.sandboxes}`, live ?? "", "--wait=false");
    await expect
      .poll(() => findPodProblems(journal, on), { interval: 1_000 })
      .toEqual([expect.stringContaining("runtime_lost")]);
    await removeWorkspaces(journal, on);
  });

  test("preemption and a drain each have their own reason, also where the container ended with 0", async () => {
    const { cluster, own, operator, reaches } = on;
    const preempted = await operator.provisionReady(imageId);
    const { spec } = await on.podOf(preempted);
    await cluster.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {
      metadata: { name: "urgent" },
      value: 1_000,
    });
    const { status } = (await cluster.call("GET", `/api/v1/nodes/${spec.nodeName}`)) as {
      status: { allocatable: { cpu: string } };
    };
    const image = await pushImage(await makeImage({ command: ["sleep", "3600"] }), {
      host: on.registry.host,
      repository: "team/urgent",
    });
    await cluster.call("POST", "/api/v1/namespaces/default/pods", {
      metadata: { name: "urgent" },
      spec: {
        priorityClassName: "urgent",
        terminationGracePeriodSeconds: 1,
        containers: [{ name: "urgent", image, resources: { requests: { cpu: status.allocatable.cpu } } }],
      },
    });
    await reaches(preempted, "failed", "preempted");
    await on.isRemoved(preempted);
    await cluster.kubectl("delete", "pod", "urgent", "--now");

    const drained = await operator.provisionReady(imageId);
    const drain = cluster.kubectl("drain", own.nodeName, "--force", "--ignore-daemonsets", "--timeout=60s");
    await reaches(drained, "failed", "node_drained");
    await drain;
    await cluster.kubectl("uncordon", own.nodeName);
  });

  describe.concurrent("at the same time", () => {
    test("a full disk has its own reason, also where the container ended with 0", async () => {
      const { operator, reaches } = on;
      const fill = [
        "sh",
        "-c",
        "trap 'exit 0' TERM; dd if=/dev/zero of=/tmp/big bs=1M count=48; while :; do sleep 0.1; done",
      ];
      const full = await operator.provision(await on.register(fill));
      await reaches(full, "failed", "disk_full");
    });

    test("no node takes a pod before the Secret of its pull is there, so that no pull is anonymous", async () => {
      const { proxy, cluster, operator } = on;
      const { imageId: privateId, stop } = await on.registerPrivate(writer);
      try {
        proxy.refuse(({ method, path }) =>
          method === "POST" && path.endsWith("/secrets") ? { status: 429, headers: { "retry-after": "2" } } : undefined,
        );
        const early = await operator.provision(privateId);
        await until(() => expect(proxy.count(({ path }) => path.endsWith("/secrets"))).toBeGreaterThan(1));
        expect((await on.podOf(early)).spec).not.toHaveProperty("nodeName");
        proxy.refuse(() => undefined);
        expectStatus(await operator.wait(early), 200);
        const failed = `--field-selector=involvedObject.name=sandgate-${early},reason=Failed`;
        expect(
          await cluster.kubectl("get", "events", `--namespace=${deployed.sandboxes}`, failed, "--output=name"),
        ).toBe("");
      } finally {
        await stop();
      }
    });

    test("a pod that somebody else's finalizer keeps ends for its user", async () => {
      const { cluster, operator, reaches } = on;
      const id = await operator.provisionReady(imageId);
      const finalizers = ["sandgate.io/sandbox", "example.com/keep"];
      await cluster.call("PATCH", podPath(id), { metadata: { finalizers } });
      expectStatus(await operator.delete(`/sandboxes/${id}`, operator.as), 204);
      await reaches(id, "stopped", "stopped_by_user");
      await until(async () => expect((await on.podOf(id)).metadata.finalizers).toEqual(["example.com/keep"]));
      await operator.provisionReady(imageId);
      await cluster.kubectl(
        "patch",
        "pod",
        `--namespace=${deployed.sandboxes}`,
        `sandgate-${id}`,
        "--type=json",
        '--patch=[{"op":"remove","path":"/metadata/finalizers"}]',
      );
      await on.isRemoved(id);
    });
  });

  test("a sandbox that no scheduler looks at waits, and runs once there is one", async () => {
    const { own, operator } = on;
    await own.scheduler.kill();
    const id = await operator.provision(imageId);
    await until(() => on.podOf(id));
    expectError(
      await operator.post("/sandboxes/wait", { sandbox_id: id, timeout_seconds: 2 }, operator.as),
      "sandbox_not_ready",
    );
    await own.scheduler.start();
    expectStatus(await operator.wait(id), 200);
  });

  test("a namespace that is deleted ends all that ran in it, and sandboxes run again once it is back", async () => {
    const { cluster, operator, reaches } = on;
    const running = await operator.provisionReady(imageId);
    const stopped = await operator.provisionReady(imageId);
    await cluster.kubectl("delete", "namespace", deployed.sandboxes, "--wait=false");
    expectStatus(await operator.delete(`/sandboxes/${stopped}`, operator.as), 204);
    await reaches(running, "failed", "runtime_lost");
    const next = await operator.provision(imageId);
    await on.finishNamespace();
    await applyRights(cluster);
    expectStatus(await operator.wait(next), 200);
    await reaches(stopped, "stopped", "stopped_by_user");
    await reaches(running, "failed", "runtime_lost");
  });
});
