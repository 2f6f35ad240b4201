import { createLogger } from "@sandgate/kit/base/logging";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { SandboxUsed } from "../store/sandboxes.ts";
import { createSandboxUses, type SandboxUses } from "./sandbox-use.ts";

let recorded: SandboxUsed[];
let record: (uses: readonly SandboxUsed[]) => Promise<void>;
let use: SandboxUses;

/** What is recorded at this second. */
async function flushAt(second: number): Promise<string[]> {
  vi.setSystemTime(second * 1000);
  recorded = [];
  await use.flush();
  return recorded.map(({ sandboxId, at }) => `${sandboxId} ${at.getTime() / 1000}`);
}

beforeEach(() => {
  vi.useFakeTimers({ now: 0, toFake: ["Date"] });
  record = async (uses) => {
    recorded.push(...uses);
  };
  use = createSandboxUses({
    record: (uses) => record(uses),
    logger: createLogger({ service: "sandbox", level: "silent" }),
  });
});
afterEach(() => vi.useRealTimers());

test("records the last use of each sandbox once", async () => {
  use.touch("a");
  vi.setSystemTime(1000);
  use.touch("a");
  use.touch("b");
  expect(await flushAt(2)).toEqual(["a 1", "b 1"]);
  expect(await flushAt(3)).toEqual([]);
});

test("records a held sandbox until the last of its holders lets it go", async () => {
  const [first, second] = [use.hold("a"), use.hold("a")];
  expect(await flushAt(1)).toEqual(["a 1"]);
  first();
  first();
  expect(await flushAt(2)).toEqual(["a 2"]);
  vi.setSystemTime(3000);
  second();
  expect(await flushAt(4)).toEqual(["a 3"]);
  expect(await flushAt(5)).toEqual([]);
});

test("records what it could not record before, and later uses where there are such", async () => {
  const working = record;
  record = () => Promise.reject(new Error("the database is away"));
  use.touch("a");
  use.touch("b");
  await expect(use.flush()).rejects.toThrow();
  record = working;
  vi.setSystemTime(1000);
  use.touch("b");
  expect(await flushAt(2)).toEqual(["a 0", "b 1"]);
});
