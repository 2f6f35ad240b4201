import { describe, vi } from "vitest";
import { requireDistributed } from "../support/distributed.ts";

const isAvailable = await requireDistributed();

/** Runs a file of the conformance suite against the distributed form. */
export function describeConformance(name: string, load: () => Promise<unknown>): void {
  describe.runIf(isAvailable)(`${name}, distributed`, async () => {
    // A dozen processes start before the first test.
    vi.setConfig({ hookTimeout: 300_000 });
    process.env.SANDGATE_CONFORMANCE_FORM = "distributed";
    await load();
  });
}
