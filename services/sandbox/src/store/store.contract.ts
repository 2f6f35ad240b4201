import { describe, expect, onTestFinished, test } from "vitest";
import { describeImageUses } from "./image-uses.contract.ts";
import { describePreviews } from "./previews.contract.ts";
import { describeQuotas } from "./quota-owners.contract.ts";
import { describeRecordQuotas } from "./record-quotas.contract.ts";
import { describeRetention } from "./retention.contract.ts";
import { describeSandboxes } from "./sandboxes.contract.ts";
import type { SandboxStore } from "./store.ts";

/** What every adapter of the sandbox store must do. `open` gives an empty store of its own to each test. */
export function describeSandboxStore(name: string, open: () => Promise<SandboxStore>): void {
  describeSandboxes(name, open);
  describeQuotas(name, open);
  describeRecordQuotas(name, open);
  describeRetention(name, open);
  describeImageUses(name, open);
  describePreviews(name, open);

  describe(`sandbox store on ${name}`, () => {
    test("keeps the installation's id", async () => {
      const store = await open();
      onTestFinished(() => store.close());
      const id = await store.installation.findId();
      expect(await store.installation.findId()).toBe(id);
    });
  });
}
