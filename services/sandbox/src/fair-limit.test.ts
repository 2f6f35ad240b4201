import { expect, test } from "vitest";
import { createFairLimit } from "./fair-limit.ts";

function createWork() {
  const running = new Map<string, number>();
  const most = new Map<string, number>();
  const ends: (() => void)[] = [];
  const count = (key: string, by: number) => {
    const now = (running.get(key) ?? 0) + by;
    running.set(key, now);
    most.set(key, Math.max(most.get(key) ?? 0, now));
  };
  return {
    most,
    runningOf: (key: string) => running.get(key) ?? 0,
    work: (key: string) => async () => {
      for (const counted of [key, "all"]) count(counted, 1);
      await new Promise<void>((resolve) => ends.push(resolve));
      for (const counted of [key, "all"]) count(counted, -1);
      return key;
    },
    async endAll() {
      while (ends.length > 0) {
        ends.shift()?.();
        await new Promise(setImmediate);
      }
    },
  };
}

test("one key's work never keeps another's waiting, and all keep to the common limit", async () => {
  const { work, most, runningOf, endAll } = createWork();
  const limit = createFairLimit({ perKey: 2, together: 3 });
  const results = [..."aaaaaaaa", ..."bb"].map((key) => limit(key, work(key)));
  await new Promise(setImmediate);
  expect([runningOf("a"), runningOf("b")]).toEqual([2, 1]);
  await endAll();
  expect(await Promise.all(results)).toEqual([..."aaaaaaaabb"]);
  expect(most).toEqual(
    new Map([
      ["a", 2],
      ["all", 3],
      ["b", 2],
    ]),
  );
});

test("work that fails gives its place back", async () => {
  const limit = createFairLimit({ perKey: 1 });
  await expect(limit("a", () => Promise.reject(new Error("no")))).rejects.toThrow("no");
  expect(await limit("a", async () => "yes")).toBe("yes");
});
