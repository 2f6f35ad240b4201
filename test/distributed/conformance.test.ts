import { afterAll, beforeAll, describe } from "vitest";
import { describeSuite } from "../conformance/suite.ts";
import { suiteSettings, testDistributed } from "../conformance/target.ts";
import { type DistributedPlatform, requireDistributed, startDistributed } from "../platform/distributed/platform.ts";

describe.runIf(await requireDistributed())("the public API, distributed,", () => {
  let platform: DistributedPlatform;

  beforeAll(async () => {
    platform = await startDistributed({ settings: suiteSettings });
    testDistributed(platform);
  });
  afterAll(() => platform?.stop());

  describeSuite();
});
