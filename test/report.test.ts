import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { startProcess } from "@sandgate/test-support/process";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";

const root = join(import.meta.dirname, "..");

test("the report of a run has what failed in tests, in hooks and outside of both, at a first try too, and counts it", async ({
  folder,
}) => {
  await writeFile(
    join(folder, "suite.test.js"),
    `import { afterAll, beforeAll, describe, expect, test } from ${JSON.stringify(join(root, "node_modules/vitest/dist/index.js"))};
    test("passes", () => {});
    test.skip("is left out", () => {});
    test("fails", () => expect(1).toBe(2));
    describe("one whose hook fails", () => {
      beforeAll(() => { throw new Error("the hook's cause"); });
      test("is not run", () => {});
    });
    describe("one whose last hook fails", () => {
      afterAll(() => { throw new Error("the last hook's cause"); });
      test("passes too", () => {});
    });
    let tries = 0;
    test("passes when tried again", () => expect(++tries).toBe(2));
    test("leaves something behind", () => void Promise.reject(new Error("nobody's cause")));
    `,
  );
  const files = { SANDGATE_TEST_FAILURES: join(folder, "failures"), SANDGATE_TEST_COUNTS: join(folder, "counts") };
  const args = [
    "node_modules/vitest/vitest.mjs",
    "run",
    "--retry=1",
    "--root",
    folder,
    `--reporter=${join(import.meta.dirname, "report.ts")}`,
  ];
  const run = startProcess(process.execPath, args, { cwd: root, env: { PATH: process.env.PATH, ...files } });
  expect(await run.exited, run.output()).toBe(1);
  const failures = await readFile(files.SANDGATE_TEST_FAILURES, "utf8");
  const path = join(folder, "suite.test.js");
  for (const failure of [
    `FLAKY    ${path}: passes when tried again\nAssertionError: expected 1 to be 2`,
    `FAILED   ${path}: fails\nAssertionError: expected 1 to be 2`,
    `FAILED   ${path}: one whose hook fails\nError: the hook's cause`,
    `FAILED   ${path}: one whose last hook fails\nError: the last hook's cause`,
    "FAILED   outside of all tests\nError: nobody's cause",
  ]) {
    expect(failures).toContain(failure);
  }
  expect(await readFile(files.SANDGATE_TEST_COUNTS, "utf8")).toBe("passed 4\nfailed 4\nskipped 2\n");
});
