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

test("one key never uses up the slots of another, and all together keep the common limit", async () => {
  const { work, most, runningOf, endAll } = createWork();
  const limit = createFairLimit({ perKey: 2, total: 3 });
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

test("one key takes all slots while no other waits, and gives them up as others come, each in turn", async () => {
  const limit = createFairLimit({ perKey: 4, total: 4 });
  const begun: string[] = [];
  const ends: (() => void)[] = [];
  const add = (key: string) =>
    limit(key, () => {
      begun.push(key);
      return new Promise<void>((resolve) => ends.push(resolve));
    });
  const results = [..."aaaaaa"].map(add);
  await new Promise(setImmediate);
  expect(begun.join("")).toBe("aaaa");
  results.push(...[..."bbbccc"].map(add));
  for (let end = ends.shift(); end; end = ends.shift()) {
    end();
    await new Promise(setImmediate);
  }
  expect(begun.join("")).toBe("aaaabcabcabc");
  await Promise.all(results);
});

test("work that fails returns its slot", async () => {
  const limit = createFairLimit({ perKey: 1 });
  await expect(limit("a", () => Promise.reject(new Error("no")))).rejects.toThrow("no");
  expect(await limit("a", async () => "yes")).toBe("yes");
});

test("an abort ends the wait, and the next task gets the slot", async () => {
  const { work, most, endAll } = createWork();
  const limit = createFairLimit({ perKey: 2, total: 1 });
  const leaving = new AbortController();
  const ran: string[] = [];
  const first = limit("a", work("a"));
  const left = ["a", "a", "b"].map((key) => limit(key, async () => ran.push(key), leaving.signal));
  const next = ["a", "b"].map((key) => limit(key, work(key)));
  await new Promise(setImmediate);
  leaving.abort("enough");
  for (const each of left) await expect(each).rejects.toBe("enough");
  await expect(limit("a", async () => ran.push("a"), leaving.signal)).rejects.toBe("enough");
  await endAll();
  expect(await Promise.all([first, ...next])).toEqual(["a", "a", "b"]);
  expect(ran).toEqual([]);
  expect(most.get("all")).toBe(1);
});

test.each([0, 1, 2, 3, 4, 5, 6])("a slot that comes %i ticks before the abort is returned once", async (ticks) => {
  const { work, runningOf, endAll } = createWork();
  const limit = createFairLimit({ perKey: 1 });
  const leaving = new AbortController();
  const first = Promise.withResolvers<string>();
  const begun = limit("a", () => first.promise);
  const left = limit("a", async () => "ran", leaving.signal).catch((reason) => reason);
  const next = [limit("a", work("a")), limit("a", work("a"))];
  await new Promise(setImmediate);
  first.resolve("first");
  for (let i = 0; i < ticks; i++) await undefined;
  leaving.abort("enough");
  expect(["enough", "ran"]).toContain(await left);
  expect(await begun).toBe("first");
  await new Promise(setImmediate);
  expect(runningOf("a")).toBe(1);
  await endAll();
  expect(await Promise.all(next)).toEqual(["a", "a"]);
});

test("an abort does not end work that has begun", async () => {
  const { work, endAll } = createWork();
  const limit = createFairLimit({ perKey: 1 });
  const leaving = new AbortController();
  const begun = limit("a", work("a"), leaving.signal);
  await new Promise(setImmediate);
  leaving.abort("enough");
  await endAll();
  expect(await begun).toBe("a");
});
