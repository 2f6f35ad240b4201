import { expect, test } from "vitest";
import { createGroupCommit } from "./group-commit.ts";

/** Commits that the test ends one by one. */
function createCommits() {
  const commits: { items: readonly string[]; end(error?: Error): void }[] = [];
  const commit = (items: readonly string[]) =>
    new Promise<void>((resolve, reject) => {
      commits.push({ items, end: (error) => (error ? reject(error) : resolve()) });
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
  const add = createGroupCommit(commit, 3);
  const added = ["a", "b", "c", "d", "e"].map(add);
  expect(await end()).toEqual(["a"]);
  await added[0];
  expect(await end()).toEqual(["b", "c", "d"]);
  expect(await end()).toEqual(["e"]);
  await Promise.all(added);
  const last = add("f");
  expect(await end()).toEqual(["f"]);
  await last;
  expect(commits).toEqual([]);
});

test("one that can't be committed fails alone", async () => {
  const { commit, end } = createCommits();
  const add = createGroupCommit(commit, 10);
  const added = Promise.allSettled(["a", "b", "bad", "c"].map(add));
  await end();
  const refused = new Error("refused");
  expect(await end(refused)).toEqual(["b", "bad", "c"]);
  for (const [item, error] of [["b"], ["bad", refused], ["c"]] as const) expect(await end(error)).toEqual([item]);
  expect((await added).map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "rejected", "fulfilled"]);
});

test("all fail together when the database can't be reached", async () => {
  const { commit, commits, end } = createCommits();
  const add = createGroupCommit(commit, 10);
  const added = Promise.allSettled(["a", "b", "c"].map(add));
  await end();
  const away = Object.assign(new Error("no server"), { name: "MongoServerSelectionError" });
  expect(await end(away)).toEqual(["b", "c"]);
  expect((await added).map(({ status }) => status)).toEqual(["fulfilled", "rejected", "rejected"]);
  expect(commits).toEqual([]);
});
