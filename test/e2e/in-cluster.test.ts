import { afterAll, beforeAll, describe } from "vitest";
import { requireInCluster, startInCluster } from "../platform/in-cluster/platform.ts";
import { type PodsPlatform, podsPlatformOf, testPods } from "./pods.ts";

describe.runIf(await requireInCluster())("the platform as pods of a cluster", () => {
  const closing = new AsyncDisposableStack();
  let platform: PodsPlatform;

  beforeAll(async () => {
    const started = closing.adopt(
      await startInCluster({ settings: { SANDGATE_RATE_LIMIT: "0", SANDGATE_CHANGE_RATE_LIMIT: "0" }, replicas: 1 }),
      (each) => each.stop(),
    );
    platform = await podsPlatformOf(started);
  });
  afterAll(() => closing.disposeAsync());

  testPods(() => platform);
});
