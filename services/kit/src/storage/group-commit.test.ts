import { expect, test } from "vitest";
import { createGroupCommit } from "./group-commit.ts";

/** Commits that the test ends one by one. Their results are the items in capitals. */
function createCommits() {
  const commits: { items: readonly string[]; end(error?: Error): void }[] = [];
  const commit = (items: readonly string[]) =>
    new Promise<readonly string[]>((resolve, reject) => {
      const results = items.map((item) => item.toUpperCase());
      commits.push({ items, end: (error) => (error ? reject(error) : resolve(results)) });
    });
  /** Ends the next commit and returns its items. */
  const end = async (error?: Error) => {
    await expect.poll(() => commits.length).toBeGreaterThan(0);
    const next = commits.shift();
    next?.end(error);
    return next?.items;
  };
  return { commit, commits, end };
}

test("what comes while a commit is running is committed together next, in order and up to the limit", async () => {
  const { commit, commits, end } = createCommits();
  const add = createGroupCommit({ commit, maxItems: 3 });
  const first = add("a");
  await expect.poll(() => commits.length).toBe(1);
  const added = ["b", "c", "d", "e"].map((item) => add(item));
  expect(await end()).toEqual(["a"]);
  expect(await first).toBe("A");
  expect(await end()).toEqual(["b", "c", "d"]);
  expect(await end()).toEqual(["e"]);
  expect(await Promise.all(added)).toEqual(["B", "C", "D", "E"]);
  const last = add("f");
  expect(await end()).toEqual(["f"]);
  await last;
  expect(commits).toEqual([]);
});

test("items of different keys are not committed together, and their commits run side by side up to the limit", async () => {
  const { commit, commits, end } = createCommits();
  const add = createGroupCommit({ commit, maxItems: 2, keyOf: (item) => item.charAt(0), commitsAtOnce: 2 });
  const added = Promise.all(["a1", "b1", "a2", "c1", "a3"].map((item) => add(item)));
  await expect.poll(() => commits.map(({ items }) => items)).toEqual([["a1", "a2"], ["b1"]]);
  await end();
  await expect.poll(() => commits.map(({ items }) => items)).toEqual([["b1"], ["c1"]]);
  expect(await end()).toEqual(["b1"]);
  await expect.poll(() => commits.map(({ items }) => items)).toEqual([["c1"], ["a3"]]);
  await end();
  await end();
  expect(await added).toEqual(["A1", "B1", "A2", "C1", "A3"]);
});

test("an item whose signal aborts before its turn is not committed", async () => {
  const { commit, commits, end } = createCommits();
  const add = createGroupCommit({ commit, maxItems: 10 });
  const first = add("a");
  await expect.poll(() => commits.length).toBe(1);
  const controller = new AbortController();
  const abandoned = expect(add("b", controller.signal)).rejects.toThrow("gave up");
  const kept = add("c", new AbortController().signal);
  controller.abort(new Error("gave up"));
  await end();
  await first;
  expect(await end()).toEqual(["c"]);
  await Promise.all([abandoned, kept]);
});

test("one that can't be committed fails alone", async () => {
  const { commit, end } = createCommits();
  const add = createGroupCommit({ commit, maxItems: 10 });
  const added = Promise.allSettled(["a", "bad", "b"].map((item) => add(item)));
  const refused = new Error("refused");
  expect(await end(refused)).toEqual(["a", "bad", "b"]);
  for (const [item, error] of [["a"], ["bad", refused], ["b"]] as const) expect(await end(error)).toEqual([item]);
  expect((await added).map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
});

test("all fail together when the database can't be reached", async () => {
  const { commit, commits, end } = createCommits();
  const add = createGroupCommit({ commit, maxItems: 10 });
  const added = Promise.allSettled(["a", "b"].map((item) => add(item)));
  const away = Object.assign(new Error("no server"), { name: "MongoServerSelectionError" });
  expect(await end(away)).toEqual(["a", "b"]);
  expect((await added).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  expect(commits).toEqual([]);
});
