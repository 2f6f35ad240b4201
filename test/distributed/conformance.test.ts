import { afterAll, beforeAll, describe } from "vitest";
import { suiteSettings, testDistributed } from "../conformance/target.ts";
import { type DistributedPlatform, requireDistributed, startDistributed } from "../platform/distributed/platform.ts";

// The files of the suite in one, so that they share a platform: its start takes longer than most of them.
describe.runIf(await requireDistributed())("the public API, distributed,", () => {
  let platform: DistributedPlatform;

  beforeAll(async () => {
    platform = await startDistributed({ settings: suiteSettings });
    testDistributed(platform);
  });
  afterAll(() => platform?.stop());

  for (const [what, load] of [
    ["access", () => import("../conformance/access.test.ts")],
    ["accounts", () => import("../conformance/accounts.test.ts")],
    ["the audit log", () => import("../conformance/audit-log.test.ts")],
    ["codes", () => import("../conformance/codes.test.ts")],
    ["what is common", () => import("../conformance/common.test.ts")],
    ["images", () => import("../conformance/images.test.ts")],
    ["monitoring", () => import("../conformance/monitoring.test.ts")],
    ["registries", () => import("../conformance/registries.test.ts")],
    ["sandboxes", () => import("../conformance/sandboxes.test.ts")],
    ["workspaces", () => import("../conformance/workspaces.test.ts")],
  ] as const) {
    describe(what, async () => {
      await load();
    });
  }
});
