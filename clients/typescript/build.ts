// Makes the package as npm gets it, in `dist` or the folder that is given: JavaScript and declarations, for runtimes that
// don't strip types.
import { execFile } from "node:child_process";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { writeReadme } from "../readme.ts";

const folder = import.meta.dirname;
const dist = resolve(process.argv[2] ?? join(folder, "dist"));
await rm(dist, { recursive: true, force: true });
const compiler = join(folder, "../../node_modules/.bin/tsc");
await promisify(execFile)(compiler, ["-p", "tsconfig.build.json", "--outDir", dist], { cwd: folder });

/** The same entries, built. */
function built(path: string): { types: string; default: string } {
  const name = path.replace(/^\.\/src\//, "./").replace(/\.ts$/, "");
  return { types: `${name}.d.ts`, default: `${name}.js` };
}

const { private: _, exports, imports, ...manifest } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
const toBuilt = (entries: Record<string, string>) =>
  Object.fromEntries(Object.entries(entries).map(([name, path]) => [name, built(path)]));
const text = JSON.stringify(
  { ...manifest, exports: toBuilt(exports), imports: { "#machine": toBuilt(imports["#machine"]) } },
  null,
  2,
);
await writeFile(join(dist, "package.json"), `${text}\n`);
await writeReadme("typescript.md", dist);
