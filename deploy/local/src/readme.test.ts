import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { allSettings } from "./settings.ts";

const readme = readFileSync(new URL("../../../README.md", import.meta.url), "utf8");

test("the README's table has every setting with its default and meaning", () => {
  const rows = allSettings().map(
    ({ name, default: fallback, doc }) => `| \`${name}\` | ${fallback ? `\`${fallback}\`` : ""} | ${doc} |`,
  );
  const start = readme.indexOf("| setting | default | meaning |");
  const table = readme.slice(start, readme.indexOf("\n\n", start)).split("\n").slice(2);
  expect(table).toEqual(rows);
});
