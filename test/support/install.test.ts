import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import { installOnce } from "./install.ts";
import { test } from "./test.ts";

test("what several install at the same moment is there once, and whole", async ({ folder }) => {
  const target = join(folder, "cache/tools");
  const install = (number: number) =>
    installOnce(target, async (draft) => {
      await delay(number * 10);
      await writeFile(join(draft, "number"), String(number));
    });
  expect(await Promise.all([1, 2, 3].map(install))).toEqual([target, target, target]);
  expect(await install(4)).toBe(target);
  expect(await readdir(join(folder, "cache"))).toEqual(["tools"]);
  expect(await readFile(join(target, "number"), "utf8")).toBe("1");
});

test("what can't be installed leaves nothing, and says why", async ({ folder }) => {
  const failing = installOnce(join(folder, "cache/tools"), async (draft) => {
    await writeFile(join(draft, "half"), "");
    throw new Error("no network");
  });
  await expect(failing).rejects.toThrow("no network");
  expect(await readdir(join(folder, "cache"))).toEqual([]);
});
