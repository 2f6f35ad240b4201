import { expect, test } from "vitest";
import { LoadingCache } from "./loading-cache.ts";

test("shares and remembers an answer for its age, counted from the question", async () => {
  let now = 1;
  let loads = 0;
  const cache = new LoadingCache<number>({ maxAgeMs: 1000, now: () => now });
  const load = async () => ++loads;
  expect(await Promise.all([cache.get("a", load), cache.get("a", load)])).toEqual([1, 1]);
  now = 1000;
  expect(await cache.get("a", load)).toBe(1);
  now = 1001;
  expect(await cache.get("a", load)).toBe(2);
});

test("forgets what is asked for, also while it is loaded", async () => {
  const cache = new LoadingCache<string>({ maxAgeMs: 1000 });
  const old = cache.get("a", async () => "old");
  cache.forget((key) => key === "a");
  expect(await cache.get("a", async () => "new")).toBe("new");
  expect(await old).toBe("old");
  expect(await cache.get("a", async () => "newer")).toBe("new");
});

test("keeps nothing that is too old", async () => {
  let now = 0;
  const cache = new LoadingCache<number>({ maxAgeMs: 1000, now: () => now });
  const kept: string[] = [];
  for (const [at, key] of [
    [1, "a"],
    [2, "b"],
    [1001, "c"],
  ] as const) {
    now = at;
    await cache.get(key, async () => 1);
  }
  cache.forget((key) => kept.push(key) === 0);
  expect(kept).toEqual(["b", "c"]);
});

test("remembers no failure, and no more than its size", async () => {
  const cache = new LoadingCache<number>({ maxAgeMs: 1000, maxEntries: 2 });
  await expect(cache.get("a", () => Promise.reject(new Error("down")))).rejects.toThrow("down");
  expect(await cache.get("a", async () => 1)).toBe(1);
  await cache.get("b", async () => 2);
  await cache.get("c", async () => 3);
  expect(await cache.get("a", async () => 4)).toBe(4);
  expect(await cache.get("c", async () => 5)).toBe(3);
});
