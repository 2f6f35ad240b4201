import { afterAll, beforeAll, describe } from "vitest";
import { createRuntimeTest, type RuntimeHarness } from "./runtime-harness.ts";
import { describeImageStore, describePulls } from "./runtime-images.ts";
import { describeIsolation, describeLife, describeLimits, describeReadiness } from "./runtime-lifecycle.ts";
import { describeOperations } from "./runtime-operations.ts";

/**
 * The contract of every adapter of the runtime's ports, on a real engine. With `concurrent`, some tests run at the same
 * time.
 */
export function describeRuntime(
  name: string,
  isAvailable: boolean,
  openHarness: () => Promise<RuntimeHarness>,
  { concurrent = false } = {},
): void {
  describe.runIf(isAvailable)(`runtime: ${name}`, { timeout: 300_000, concurrent }, () => {
    let harness: RuntimeHarness;
    beforeAll(async () => {
      harness = await openHarness();
    });
    afterAll(() => harness?.close());
    const test = createRuntimeTest(() => harness);

    describeLife(test);
    describeReadiness(test);
    describeLimits(test);
    describeIsolation(test);
    describePulls(test);
    describeImageStore(test);
    describeOperations(test);
  });
}
