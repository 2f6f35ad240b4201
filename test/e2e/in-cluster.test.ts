import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { expectStatus } from "../conformance/client.ts";
import { requireInCluster, startInCluster } from "../platform/in-cluster/platform.ts";
import { openOperator } from "../platform/operator.ts";
import { isRemoved, type PodsPlatform, reaches, registerImage, testPods } from "./pods.ts";

vi.setConfig({ testTimeout: 120_000 });

describe.runIf(await requireInCluster())("the platform as pods of a cluster", () => {
  const closing = new AsyncDisposableStack();
  let platform: PodsPlatform;

  beforeAll(async () => {
    const started = closing.adopt(
      await startInCluster({ settings: { SANDGATE_RATE_LIMIT: "0" }, replicas: 1 }),
      (each) => each.stop(),
    );
    platform = {
      ...started,
      operator: await openOperator(started),
      kill: () => started.kill("sandbox"),
      start: () => started.start("sandbox"),
    };
  });
  afterAll(() => closing.disposeAsync());

  testPods(() => platform);

  test("shows the lines and figures that a sandbox's node has, also its last lines once its pod is gone", async () => {
    const { operator } = platform;
    const script = "trap 'echo bye; exit 0' TERM; echo hello; while :; do sleep 0.1; done";
    const id = await operator.provisionReady(await registerImage(platform, ["sh", "-c", script]));
    const linesOf = ({ logs }: { logs: { log: string }[] }) => logs.map(({ log }) => log);
    await until(async () => {
      const monitored = await operator.monitor(id);
      expect(linesOf(monitored)).toEqual(["hello"]);
      expect(monitored.metrics.at(-1).memory_usage).toBeGreaterThan(0);
    });
    expectStatus(await operator.delete(`/sandboxes/${id}`, operator.as), 204);
    await reaches(platform, id, "stopped", "stopped_by_user");
    await isRemoved(platform, id);
    expect(linesOf(await operator.monitor(id))).toEqual(["hello", "bye"]);
  });
});
