import { existsSync, readFileSync } from "node:fs";
import { glob } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { expect, test } from "vitest";

const root = join(import.meta.dirname, "../..");

/** The anchors that a page's headings have where Markdown is shown. */
function anchorsOf(page: string): Set<string> {
  const titles = page.replaceAll(/^```[\s\S]*?^```/gm, "").matchAll(/^#+ (.+)$/gm);
  return new Set(
    [...titles].map(([, title = ""]) =>
      title
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N}\s_-]/gu, "")
        .replaceAll(/\s/g, "-"),
    ),
  );
}

test("every link between pages leads to a file, and to a heading of it", async () => {
  const broken: string[] = [];
  let links = 0;
  for await (const file of glob("**/*.md", {
    cwd: root,
    exclude: (name) => /(^|\/)(node_modules|data|dist)$/.test(name),
  })) {
    const page = readFileSync(join(root, file), "utf8");
    for (const [, target = ""] of page.matchAll(/\]\((?!https?:)([^)\s]+)\)/g)) {
      links++;
      const [path = "", anchor] = target.split("#");
      const linked = path === "" ? join(root, file) : join(root, dirname(file), path);
      const isThere = existsSync(linked) && (!anchor || anchorsOf(readFileSync(linked, "utf8")).has(anchor));
      if (!isThere) broken.push(`${relative(root, join(root, file))}: ${target}`);
    }
  }
  expect(links).toBeGreaterThan(60);
  expect(broken).toEqual([]);
});

test("the list of decisions has each decision by its title, and each says its context, decision and consequences", async () => {
  const folder = join(root, "docs/decisions");
  const titles: string[] = [];
  for await (const file of glob("[0-9]*.md", { cwd: folder })) {
    const page = readFileSync(join(folder, file), "utf8");
    expect(page.match(/^#+ .*$/gm)?.slice(1), file).toEqual(["## Context", "## Decision", "## Consequences"]);
    titles.push(`- [${file.slice(0, 3)}: ${page.split("\n")[0]?.slice(2)}](${file})`);
  }
  const list = readFileSync(join(folder, "README.md"), "utf8").match(/^- \[.*$/gm);
  expect(list).toEqual(titles.toSorted());
});
