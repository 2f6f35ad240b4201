import { execFileSync } from "node:child_process";
import { appendFile, cp } from "node:fs/promises";
import { join } from "node:path";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";

test("the default image has a name that no registry can have, and another once its folder changes", async ({
  folder,
}) => {
  await cp(import.meta.dirname, join(folder, "deploy/local"), { recursive: true });
  const nameOf = (locale: string) =>
    execFileSync("sh", ["-c", '. deploy/local/prepare.sh && printf %s "$default_image"'], {
      cwd: folder,
      env: { PATH: process.env.PATH, LC_ALL: locale },
      encoding: "utf8",
    });
  const name = nameOf("C");
  expect(name).toMatch(/^localhost\/sandgate\/default:\d+$/);
  expect(nameOf("C.UTF-8")).toBe(name);
  await appendFile(join(folder, "deploy/local/default-image/index.html"), "\n");
  expect(nameOf("C")).not.toBe(name);
  expect(nameOf("C")).toMatch(/^localhost\/sandgate\/default:\d+$/);
});
