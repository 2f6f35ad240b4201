import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { suiteSettings } from "../conformance/suite-settings.ts";

test("test/README.md tells the settings that the conformance suite asks for", async () => {
  const text = await readFile(join(import.meta.dirname, "../README.md"), "utf8");
  const [, block] = /<!-- settings: .*-->\n```sh\n([\s\S]*?)```/.exec(text) ?? [];
  const listed = block?.split("\n").filter(Boolean);
  expect(listed).toEqual(Object.entries(suiteSettings).map(([name, value]) => `${name}=${value}`));
});
