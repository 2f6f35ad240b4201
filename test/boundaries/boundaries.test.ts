import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { findViolations } from "./boundaries.ts";

let root: string | undefined;

afterEach(() => {
  if (root) rmSync(root, { recursive: true });
  root = undefined;
});

/** A small workspace of a service "sandbox" beside a service "workspace", with one file in the former. */
function writeWorkspace(file: string, source: string, dependencies: Record<string, string> = {}): string {
  root = mkdtempSync(join(tmpdir(), "boundaries-"));
  const files: Record<string, string> = {
    "package.json": JSON.stringify({ workspaces: ["services/*"], devDependencies: { vitest: "*" } }),
    "services/workspace/package.json": JSON.stringify({ name: "@sandgate/workspace" }),
    "services/workspace/src/service.ts": "export const answer = 42;\n",
    "services/sandbox/package.json": JSON.stringify({ name: "@sandgate/sandbox", dependencies }),
    [`services/sandbox/${file}`]: source,
  };
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), content);
  }
  return root;
}

test("every package of this repository lists exactly what it imports, and no service imports another", () => {
  expect(findViolations(join(import.meta.dirname, "../.."))).toEqual([]);
});

test("a package that keeps the rules has no violations", () => {
  const source = 'import { hash } from "node:crypto";\nimport type {\n  A,\n} from "@sandgate/kit/rpc/errors";\n';
  expect(findViolations(writeWorkspace("src/a.ts", source, { "@sandgate/kit": "*" }))).toEqual([]);
});

test.each([
  {
    what: "a service that imports another service, listed or not",
    file: "src/a.ts",
    source: 'import { answer } from "@sandgate/workspace";\n',
    dependencies: { "@sandgate/workspace": "*" },
    violation: "services/sandbox/src/a.ts may not import @sandgate/workspace",
  },
  {
    what: "a path that leaves the package",
    file: "src/a.ts",
    source: 'import { answer } from "../../workspace/src/service.ts";\n',
    dependencies: {},
    violation: "services/sandbox/src/a.ts imports ../../workspace/src/service.ts, which is outside of its package",
  },
  {
    what: "a package that is not listed, imported as it runs",
    file: "src/a.ts",
    source: `export const load = () => import(${'"left-pad/lib"'});\n`,
    dependencies: {},
    violation: "services/sandbox/src/a.ts imports left-pad, which its package.json does not list",
  },
  {
    what: "a tool of the tests in a source file",
    file: "src/a.ts",
    source: 'export { test } from "vitest";\n',
    dependencies: {},
    violation: "services/sandbox/src/a.ts imports vitest, which its package.json does not list",
  },
  {
    what: "a package that is listed and not imported",
    file: "src/a.ts",
    source: "export {};\n",
    dependencies: { "left-pad": "*" },
    violation: "services/sandbox/package.json lists left-pad, which is not imported",
  },
])("it finds $what", ({ file, source, dependencies, violation }) => {
  expect(findViolations(writeWorkspace(file, source, dependencies))).toEqual([violation]);
});
