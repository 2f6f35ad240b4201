import { afterAll, beforeAll, describe } from "vitest";
import { describeSuite } from "../conformance/suite.ts";
import { suiteSettings } from "../conformance/suite-settings.ts";
import { testDistributed } from "../conformance/target.ts";
import { type DistributedPlatform, requireDistributed, startDistributed } from "../platform/distributed/platform.ts";

describe.runIf(await requireDistributed())("the public API, distributed,", () => {
  let platform: DistributedPlatform;

  beforeAll(async () => {
    // The names below localhost lead to the port of the facade that is asked.
    platform = await startDistributed({ settings: { ...suiteSettings, SANDGATE_PREVIEW_DOMAIN: "previews.test" } });
    testDistributed(platform);
  });
  afterAll(() => platform?.stop());

  describeSuite();
});
