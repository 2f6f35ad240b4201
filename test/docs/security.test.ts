import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

const root = join(import.meta.dirname, "../..");

test("every file that SECURITY.md names exists, and every threat that it lists names a test", async () => {
  const page = await readFile(join(root, "SECURITY.md"), "utf8");
  const named = [...page.matchAll(/`([\w./-]+\.(?:test\.ts|md))`|\]\(([\w./-]+)(?:#[\w-]+)?\)/g)].map(
    ([, code, link]) => code ?? link ?? "",
  );
  expect(named.length).toBeGreaterThan(60);
  expect(named.filter((path) => !existsSync(join(root, path)))).toEqual([]);

  const [, threats = ""] = page.split("## What holds, and how it is tested");
  const rows = threats.split("\n## ")[0]?.match(/^\| (?!threat|---).*$/gm) ?? [];
  expect(rows.length).toBeGreaterThan(15);
  expect(rows.filter((row) => !/`[\w./-]+\.test\.ts` \|$/.test(row))).toEqual([]);
});
